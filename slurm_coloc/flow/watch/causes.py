# SPDX-License-Identifier: Apache-2.0
"""Why a run ended: why Slurm put it back, or what caused an out-of-memory or a fault of MPS.

slurmctld does not keep in the job why it was put back: slurmdbd does, and without it the node's
state shows it. A node that fails takes many jobs with it, so one round asks each of the two once.
The reports of the run's nodes show its own cause, also an out-of-memory that only the agent saw.
"""

from collections.abc import Collection
from dataclasses import replace

import structlog

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.records.runs import (
    EndedRun,
    Evidence,
    GpuEvent,
    Report,
    Run,
    Use,
    promised_mib,
)
from slurm_coloc.core.recover.outcome import (
    Blame,
    Cause,
    OomSnapshot,
    Outcome,
    at_fence,
    blame,
    ended_for_overrun,
)
from slurm_coloc.core.recover.xid import breaks
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.core.slurm.job import EndedJob, JobView
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()

# How a run that Slurm put back had ended, as slurmdbd keeps it.
CAUSES = {
    "PREEMPTED": Outcome.PREEMPTED,
    "NODE_FAIL": Outcome.NODE_FAIL,
    "REQUEUED": Outcome.REQUEUED,
    "CANCELLED": Outcome.REQUEUED,
}
AT_ONCE = 500  # job ids in one question: it is a command line
#: kind of evidence that comes from the agent, not from the log
BY_TELEMETRY = "telemetry"
#: faults of runs on one GPU within so many seconds have one cause
TOGETHER_S = 20.0
#: a job may live so long with a GPU that failed: torchrun lets the other ranks end for 30 s
BROKEN_S = 120.0
#: kind of the event of a job that its agent sees above its share, and for how long one counts
OVERRUN, OVERRUN_S = "overrun", 600.0
#: kinds of an Epilog's evidence of a fault (core/recover/faults)
FAULTS = ("mps", "device")
#: kinds of the agent's events that may tell of a GPU that failed
BROKEN = ("xid", "gpu-lost")


def put_back(run: Run, view: JobView | None) -> bool:
    """Whether Slurm shows a later run than ``run``, which had started."""
    return view is not None and run.start_s is not None and view.restarts > run.restart


class Causes:
    """The causes of one round. Slurm's answer, or its silence, holds for all of it."""

    def __init__(self, slurm: SlurmClient, job_ids: Collection[int]) -> None:
        """``job_ids``: the jobs that will be asked about."""
        self._slurm = slurm
        self._job_ids = sorted(set(job_ids))
        self._ended: list[EndedJob] | None = None
        self._down: tuple[str, ...] | None = None
        self._silent = False

    async def of(self, run: Run, view: JobView | None) -> Outcome:
        """Why Slurm shows a later run than ``run``; REQUEUED where that cannot be found out."""
        if not put_back(run, view) or self._silent:
            return Outcome.REQUEUED
        try:
            return await self._from_accounting(run) or await self._from_node(run)
        except SlurmError as err:
            self._silent = True
            log.warning("slurm", jobid=run.job_id, error=err.message)
            return Outcome.REQUEUED

    async def _from_accounting(self, run: Run) -> Outcome | None:
        if self._ended is None:
            self._ended = await self._accounted()
        found = [
            one.state
            for one in self._ended
            if one.job_id == run.job_id and one.restarts == run.restart
        ]
        return CAUSES.get(found[-1]) if found else None

    async def _accounted(self) -> list[EndedJob]:
        found: list[EndedJob] = []
        try:
            for start in range(0, len(self._job_ids), AT_ONCE):
                found += await self._slurm.accounted(*self._job_ids[start : start + AT_ONCE])
        except SlurmError as err:
            if err.code != "no-accounting":
                raise
        return found

    async def _from_node(self, run: Run) -> Outcome:
        if self._down is None:
            shape = await self._slurm.shape()
            self._down = tuple(node.name for node in shape.nodes if node.down)
        lost = any(in_nodes(run.node or "", name) for name in self._down)
        return Outcome.NODE_FAIL if lost else Outcome.REQUEUED


def _fenced(body: Report) -> bool:
    """Whether a fence on the node held the run to its promised memory."""
    return body.method == "mps" or body.fence == FenceLevel.CGROUP


def from_telemetry(store: Store, run: Run, body: Report) -> Report:
    """The report, with evidence from the agent where the log has none and the run was at its memory
    limit when it failed."""
    if body.evidence or not body.exit_code or not _fenced(body):
        return body
    decision = store.decisions.of(run.decision)
    limit_mib = promised_mib(run.tres, decision) if decision else 0
    last = body.used.get("last") if body.used else None
    if last is None or not at_fence(last, limit_mib, body.ended_s or 0.0):
        return body
    held = f"{last['held_mib'] / 1024:.1f} of {limit_mib / 1024:.1f} GiB"
    line = f"its log shows nothing; it held {held} when last seen"
    return replace(body, evidence={"oom": True, "kind": BY_TELEMETRY, "line": line})


def blamed(
    store: Store,
    run: EndedRun,
    outcome: Outcome,
    body: Report,
    uses: list[Use],
    context_mib: int,
) -> Cause | None:
    """Who caused the end of ``run`` (with its ``end_s`` and ``share_mib``), and why; None for an
    end without an out-of-memory or fault. ``context_mib``: the most that a process takes beside
    what its fence counts."""
    if outcome is Outcome.OVERRUN:
        return Cause(Blame.SELF, overrun_of(body))
    evidence: Evidence = body.evidence or {}
    near = _last_events(run, uses)
    told = [one["text"] for one in near if one["kind"] in BROKEN]
    broken = next(filter(breaks, told), "")
    fault = False
    if outcome is Outcome.FAILED:
        fault = _mps_fault(store, run, body, evidence, near)
        if not fault and not broken:
            return None
    elif outcome is not Outcome.OOM_GPU:
        return None
    samples = [last for one in uses if (last := one.get("last"))]
    last = max(samples, key=lambda one: one["held_mib"], default=None)
    beside = last.get("neighbours", ()) if last else ()
    met = [store.runs.begun(one["job_id"], run.end_s) for one in beside]
    others = [one for one in met if one is not None]
    snapshot = OomSnapshot(
        share_mib=run.share_mib,
        fenced=_fenced(body) and bool(run.share_mib),
        last=last,
        promised=_promised_to(store, others),
        requested_mib=evidence.get("requested_mib"),
        free_mib=evidence.get("free_mib"),
        in_use_mib=evidence.get("in_use_mib"),
        capacity_mib=evidence.get("capacity_mib"),
        others_mib=evidence.get("others_mib"),
        overran=_overran(store, others, run.end_s),
        context_mib=context_mib,
        mps_fault=fault,
        broken=broken if outcome is Outcome.FAILED else "",
    )
    return blame(snapshot)


def overrun_of(body: Report | None) -> str:
    """What the agent wrote when it ended the run for holding too much; "" where it did not."""
    if body is None or body.used is None:
        return ""
    return ended_for_overrun(body.used.get("events", ()), body.ended_s or 0.0)


def _promised_to(store: Store, runs: list[Run]) -> dict[int, int]:
    """The memory promised to other jobs' runs (MiB), by job id; only known shares."""
    found: dict[int, int] = {}
    for run in runs:
        decision = store.decisions.of(run.decision)
        mib = promised_mib(run.tres, decision) if decision else 0
        if mib:
            found[run.job_id] = mib
    return found


def _overran(store: Store, runs: list[Run], end_s: float) -> frozenset[int]:
    """The jobs of which an agent said shortly before ``end_s`` that they hold more than their
    share."""
    return frozenset(
        run.job_id
        for run in runs
        if any(
            event.kind == OVERRUN and -OVERRUN_S <= event.at_s - end_s <= TOGETHER_S
            for event in store.events(run.decision, run.job_id)
        )
    )


def _last_events(run: EndedRun, uses: list[Use]) -> list[GpuEvent]:
    """The agents' events shortly before the run ended, or last held memory, on any of its nodes."""
    events = [event for one in uses for event in one.get("events", ())]
    ends = [run.end_s, *(last["at_s"] for one in uses if (last := one.get("last")))]

    def near(event: GpuEvent) -> bool:
        before_s = run.end_s - event["at_s"]
        failed = event["kind"] in BROKEN and breaks(event["text"]) and 0 <= before_s <= BROKEN_S
        return bool(failed) or any(abs(end_s - event["at_s"]) <= TOGETHER_S for end_s in ends)

    return list(filter(near, events))


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


def same_job(run: Run, view: JobView) -> bool:
    """Whether Slurm shows this run's job under its id: by its mark, or by its owner and submission
    where an operator has written another AdminComment."""
    unmarked = view.decision is None and view.uid == run.uid and view.submit_s is not None
    return view.decision == run.decision or (unmarked and view.submit_s == run.submit_s)
