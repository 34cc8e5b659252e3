# SPDX-License-Identifier: Apache-2.0
"""Stage record: who caused a run's out-of-memory or MPS fault; also finds an out-of-memory that no
log shows, from the node's agent."""

from dataclasses import replace

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.records.runs import EndedRun, Evidence, GpuEvent, Report, Run, Use
from slurm_coloc.core.recover.outcome import Blame, OomSnapshot, Outcome, at_fence, blame
from slurm_coloc.core.recover.xid import breaks
from slurm_coloc.flow.watch.shares import promised_mib, promised_to

#: kind of evidence that comes from the agent, not from the log
BY_TELEMETRY = "telemetry"
#: faults of runs on one GPU within so many seconds have one cause
TOGETHER_S = 20.0
#: kinds of an Epilog's evidence of a fault (core/recover/faults)
FAULTS = ("mps", "device")
#: kinds of the agent's events that may tell of a GPU that failed
BROKEN = ("xid", "gpu-lost")


def fenced(body: Report) -> bool:
    """Whether a fence on the node held the run to its promised memory."""
    return body.method == "mps" or body.fence == FenceLevel.CGROUP


def from_telemetry(store: Store, run: Run, body: Report) -> Report:
    """The report, with evidence from the agent where the log has none and the run was at its memory
    limit when it failed."""
    if body.evidence or not body.exit_code or not fenced(body):
        return body
    decision = store.decisions.of(run.decision)
    limit_mib = promised_mib(run.tres, decision) if decision else 0
    last = body.used.get("last") if body.used else None
    if last is None or not at_fence(last, limit_mib, body.ended_s or 0.0):
        return body
    held = f"{last['held_mib'] / 1024:.1f} of {limit_mib / 1024:.1f} GiB"
    line = f"its log shows nothing; it held {held} when last seen"
    return replace(body, evidence={"oom": True, "kind": BY_TELEMETRY, "line": line})


def of(
    store: Store, run: EndedRun, outcome: Outcome, body: Report, uses: list[Use]
) -> tuple[Blame | None, str]:
    """Who caused the end of ``run`` (with its ``end_s`` and ``share_mib``), and why; None for an
    end without an out-of-memory or fault."""
    evidence: Evidence = body.evidence or {}
    near = _last_events(run, uses)
    told = [one["text"] for one in near if one["kind"] in BROKEN]
    broken = next(filter(breaks, told), "")
    fault = False
    if outcome is Outcome.FAILED:
        fault = _mps_fault(store, run, body, evidence, near)
        if not fault and not broken:
            return None, ""
    elif outcome is not Outcome.OOM_GPU:
        return None, ""
    samples = [last for one in uses if (last := one.get("last"))]
    last = max(samples, key=lambda one: one["held_mib"], default=None)
    others = [one["job_id"] for one in last.get("neighbours", ())] if last else []
    snapshot = OomSnapshot(
        share_mib=run.share_mib,
        fenced=fenced(body) and bool(run.share_mib),
        last=last,
        promised=promised_to(store, others),
        requested_mib=evidence.get("requested_mib"),
        free_mib=evidence.get("free_mib"),
        in_use_mib=evidence.get("in_use_mib"),
        mps_fault=fault,
        broken=broken if outcome is Outcome.FAILED else "",
    )
    return blame(snapshot)


def _last_events(run: EndedRun, uses: list[Use]) -> list[GpuEvent]:
    """The agents' events shortly before the run ended, on any of its nodes."""
    events = [event for one in uses for event in one.get("events", ())]
    return [one for one in events if abs(run.end_s - one["at_s"]) <= TOGETHER_S]


def _mps_fault(
    store: Store, run: EndedRun, body: Report, evidence: Evidence, near: list[GpuEvent]
) -> bool:
    """Whether the run's end came from its MPS server: MPS says so, the driver reported a fault that
    ends all clients, or another client of the same GPU ended by a fault at the same time."""
    if body.method != "mps":
        return False
    if evidence.get("kind") == "mps" or any(event["kind"] == "mps-fault" for event in near):
        return True
    if evidence.get("kind") not in FAULTS:
        return False
    until_s = run.end_s + TOGETHER_S
    return store.reports.faulted_beside(run, body.gpu_uuids, beside_since_s(run), until_s)


def beside_since_s(run: EndedRun) -> float:
    """Since when (epoch) a fault of another run on the same GPU may have ended ``run``."""
    return max(run.end_s - TOGETHER_S, run.start_s or 0.0)
