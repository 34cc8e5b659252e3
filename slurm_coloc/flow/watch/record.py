# SPDX-License-Identifier: Apache-2.0
"""Stage record: stores once how a run ended, and plans its recovery in the same transaction."""

import re
import time

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.gpu.fence import FenceLevel
from slurm_coloc.core.records.runs import (
    EndedRun,
    Report,
    Run,
    StoredDecision,
    promised_mib,
    shared,
)
from slurm_coloc.core.recover.faults import NOT_JUDGED
from slurm_coloc.core.recover.next_try import VICTIMS
from slurm_coloc.core.recover.outcome import WHOSE, Blame, Cause, Outcome, outcome_of
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.time.slot import ended_by_slot, slot_from
from slurm_coloc.flow.recover import array_tasks, next_try
from slurm_coloc.flow.submit.decide import rules_of
from slurm_coloc.flow.submit.history import Learning, TypeOf, ended, own_peak
from slurm_coloc.flow.watch import culprits, idle
from slurm_coloc.flow.watch.causes import beside_since_s, blamed, from_telemetry, overrun_of

log = structlog.get_logger()

# By the hosts' clocks an Epilog's report may be older than the first sight of its job.
CLOCK_SLACK_S = 60.0

SIGNALLED = 128  # exit codes from here on are a shell's for a signal
SHOWN = 100  # characters of the log's own line in an event; all of it is in the evidence

#: what `coloc explain` says of each end
ENDS = {
    Outcome.COMPLETED: "completed",
    Outcome.OOM_GPU: "ran out of GPU memory",
    Outcome.OVERRUN: "its processes held more GPU memory than it was promised and were ended",
    Outcome.OOM_HOST: "ran out of host memory: not caused by sharing the GPU, left alone",
    Outcome.FAILED: "failed for another reason than GPU memory: left alone",
    Outcome.CANCELLED: "cancelled",
    Outcome.IDLE: "cancelled by the site's rule: it held a GPU and did not use it",
    Outcome.TIMEOUT: "reached its time limit: left alone",
    Outcome.PREEMPTED: "preempted: left to Slurm",
    Outcome.NODE_FAIL: "its node failed: left to Slurm",
    Outcome.REQUEUED: "put back into the queue, not by colocd",
    Outcome.PUT_BACK: "put back before it began: its GPU was not fit for it",
    Outcome.SLOT: "its time slot ended: it goes on in the next one",
    Outcome.GONE: "no longer known to slurmctld: how it ended was not seen",
}
#: What enforces a limit, in words for messages.
HOLDER = {
    FenceLevel.CGROUP: "which the kernel holds for all of its processes",
    FenceLevel.MPS: "which MPS holds",
    FenceLevel.FRAMEWORK: "which its framework holds",
}
#: PyTorch names the limit of its own allocator in its text (2.10: "5.00 GiB allowed; ").
_ALLOWED = re.compile(r"\b[0-9.]+ [KMG]iB allowed\b")
# Outcomes of a run that leaves to go on later: by its exit, or by its own requeue.
LEAVES = (Outcome.COMPLETED, Outcome.FAILED, Outcome.REQUEUED)
# Outcomes of a run that needs more memory than it had.
RAN_OUT = (Outcome.OOM_GPU, Outcome.OVERRUN)


class Recorder:
    """Closes runs."""

    def __init__(self, config: Config, store: Store, type_of: TypeOf = lambda node: "") -> None:
        """``type_of``: the type of a node's GPUs."""
        self._config = config
        self._store = store
        self._type_of = type_of
        self._learning = Learning(config.estimate, store)
        self._sizing = rules_of(config).sizing

    def report_on(self, run: Run) -> Report | None:
        """The Epilog's report on a run; None while there is none."""
        report = self._store.reports.newest(run, _since_s(run))
        return report and from_telemetry(self._store, run, report)

    def _left(self, run: Run, slot: str, outcome: Outcome, report: Report, now: float) -> bool:
        """Whether a run of a job with time slots left at its slot's end, to go on. On 22.05 the
        Epilog of a run that requeued itself gets the next run's number, so its log is not known."""
        if outcome in LEAVES and report.goes_on:
            return True
        row = self._store.slots.of(run.decision, run.job_id)
        if outcome is not Outcome.REQUEUED or row is None or not run.start_s:
            return False
        signalled = row.restart == run.restart and row.signalled_s is not None
        return ended_by_slot(signalled, False, now - run.start_s, slot_from(slot))

    def in_slots(self, run: Run) -> bool:
        """Whether the run is of a job with time slots."""
        decision = self._store.decisions.of(run.decision)
        return decision is not None and decision.slot is not None

    def late(self, job_id: int) -> None:
        """Add the use of a late report to its closed run: another node reported first."""
        runs = self._store.runs.of_job(job_id)
        for run in runs:
            if run.open or run.decision != runs[-1].decision:  # ids started again: another job
                continue
            uses = self._store.reports.uses(run, _since_s(run))
            if len(uses) > len(run.used or ()):
                with self._store.transaction():
                    self._store.runs.add_uses(run, uses)
                    self._store.reports.use(run)

    def end(self, run: Run, outcome: Outcome, view: JobView | None, report: Report | None) -> None:
        """Close ``run`` and plan its recovery where that is due; safe to call twice."""
        decision = self._store.decisions.of(run.decision)
        if decision is None:
            return
        now = time.time()
        report = report or Report()
        if decision.slot and self._left(run, decision.slot, outcome, report, now):
            outcome = Outcome.SLOT
        if outcome is Outcome.CANCELLED and idle.cancelled(self._store, run):
            outcome = Outcome.IDLE
        evidence = report.evidence
        share_mib = promised_mib(run.tres, decision)
        end_s = (view.end_s if view else None) or report.ended_s or now
        # On some releases the Epilog of a run that requeued itself has the next one's number.
        end_s = end_s if end_s > (run.start_s or 0.0) else now
        over = ended(run, view, end_s, share_mib)
        uses = self._store.reports.uses(run, _since_s(run))
        began = outcome is not Outcome.PUT_BACK
        peak = own_peak(self._store, over, decision, report, uses) if began else None
        context_mib = self._config.estimate.context_mib
        cause = blamed(self._store, over, outcome, report, uses, context_mib)
        fault = cause.blame if cause else None
        need = next_try.need_of(evidence, peak.peak_mib if peak else None, uses)
        recovery = self._config.recovery
        found = next_try.after(self._store, recovery, over, decision, outcome, fault, need, now)
        # Only a recovery must survive a power loss: a write that waits for the disk delays the
        # submissions that arrive meanwhile.
        with self._store.transaction(durable=found.verdict.puts_back):
            closed = self._store.runs.close(
                run,
                state=view.state if view else run.state,
                outcome=str(outcome),
                exit_code=view.exit_code if view else report.exit_code,
                end_s=over.end_s,
                peak_mib=peak.peak_mib if peak else None,
                used=uses or None,
                blame=str(fault) if fault else None,
                method=report.method,
                gpu_uuids=tuple(dict.fromkeys([*(run.gpu_uuids or ()), *report.gpu_uuids])) or None,
                evidence=evidence or None,
                share_mib=share_mib,
                verdict=str(found.verdict),
            )
            if not closed:
                return
            self._store.reports.use(run)
            self._note(run, "ended", _how(outcome, found, report, share_mib))
            if cause:
                self._note_blame(run, cause)
                if cause.culprit:
                    culprits.name(self._store, over, cause.culprit, now)
            gpu, victim = self._type_of(run.node), fault in VICTIMS
            self._learning.note(over, decision, outcome, peak, uses, gpu, victim=victim)
            self._plan(over, decision, view, found, now)
            if fault is Blame.MPS_FAULT:
                self._blame_the_server(over, report, now)
            if shared(run.tres, decision) and recovery.resize_siblings:
                array_tasks.plan(
                    self._store, run, decision, view, outcome, self._sizing, found.grown,
                    min_run_s=self._config.estimate.history_min_run_s,
                )  # fmt: skip
        log.info(
            "ended",
            jobid=run.job_id,
            restart=run.restart,
            decision=run.decision,
            outcome=str(outcome),
            verdict=str(found.verdict),
        )

    def _note(self, run: Run, kind: str, text: str) -> None:
        self._store.note(run.decision, run.job_id, kind, text)

    def _note_blame(self, run: Run, cause: Cause) -> None:
        if cause.blame is not Blame.UNKNOWN:
            self._note(run, "blame", next_try.whose(cause.blame, cause.why))

    def _plan(
        self,
        run: Run,
        decision: StoredDecision,
        view: JobView | None,
        found: next_try.Next,
        now: float,
    ) -> None:
        if found.verdict.puts_back:
            next_try.plan(self._store, self._config.recovery, run, view, found, now)
            self._note(run, "recover", next_try.words(found, decision))

    def _blame_the_server(self, run: EndedRun, report: Report, now: float) -> None:
        """Correct the cause of runs on the same GPUs that ended shortly before ``run`` by a fault
        that seemed their own: the first client of a server is judged before the others end."""
        mine = set(report.gpu_uuids)
        for other in self._store.runs.unblamed(beside_since_s(run)):
            decision = self._store.decisions.of(other.decision)
            if decision is None or not mine & set(other.gpu_uuids or ()):
                continue
            fault, outcome = Blame.MPS_FAULT, Outcome.FAILED
            need = next_try.need_of(None, None, [])
            recovery = self._config.recovery
            found = next_try.after(
                self._store, recovery, other, decision, outcome, fault, need, now
            )
            self._store.runs.change(other, blame=str(fault), verdict=str(found.verdict))
            # The event of its end says that it was left alone.
            self._note(other, "ended", _failed_by(fault))
            why = f"job {run.job_id} on the same server ended by it too"
            self._note_blame(other, Cause(fault, why))
            self._plan(other, decision, None, found, now)


def _how(outcome: Outcome, found: next_try.Next, report: Report, share_mib: int) -> str:
    """How a run ended, in words."""
    text = ENDS[outcome]
    line = report.evidence.get("line", "") if report.evidence else ""
    if outcome is Outcome.OOM_GPU:
        holder = limit_held_by(report.method, report.fence, line)
        if holder and share_mib and found.cause not in VICTIMS:
            text += f" at its own limit of {share_mib / 1024:.1f} GiB, {holder}"
        if report.evidence:
            text += f" ({line[:SHOWN]}{'...' if len(line) > SHOWN else ''})"
    elif outcome is Outcome.COMPLETED and report.oom:
        text += ", although its log shows a GPU out-of-memory (caught by the program)"
    elif outcome is Outcome.FAILED and (report.evidence or {}).get("kind") == NOT_JUDGED:
        text = f"failed, and nothing tells why: {line}"
    elif outcome is Outcome.FAILED and found.cause in VICTIMS:
        text = _failed_by(Blame(found.cause))
    if (outcome in RAN_OUT or found.tres) and not found.verdict.puts_back:
        text += f"; {next_try.why_not(found)}"
    return text


def limit_held_by(method: str | None, fence: str | None, line: str) -> str:
    """What enforced the limit that a run met, by the ``method`` and ``fence`` that its Epilog
    reported and the ``line`` of its log; "" for nothing."""
    if fence == FenceLevel.CGROUP:
        return HOLDER[FenceLevel.CGROUP]
    if method == "mps":
        return HOLDER[FenceLevel.MPS]
    return HOLDER[FenceLevel.FRAMEWORK] if _ALLOWED.search(line) else ""


def _failed_by(fault: Blame) -> str:
    """The end of a run that failed by ``fault``, in words."""
    return f"failed, {WHOSE[fault]}"


def _since_s(run: Run) -> float:
    """Since when reports count: older ones are of another job with that id."""
    return (run.submit_s or 0.0) - CLOCK_SLACK_S


def out_of_memory(view: JobView, report: Report | None) -> bool:
    """Whether a job that is still COMPLETING ran out of GPU memory for certain: then its recovery
    begins before the jobs that depend on it see it fail."""
    failed = view.completing and view.state == "FAILED"
    return failed and judge_ended(view, report) in RAN_OUT


def leaves(view: JobView, report: Report | None) -> bool:
    """Whether a job that is still COMPLETING asked by its exit to go on later: then it is put back
    before the jobs that depend on it see it end."""
    goes_on = report is not None and report.goes_on
    return goes_on and view.completing and view.state in ("FAILED", "COMPLETED")


def ran_out(report: Report | None) -> bool:
    """Whether the report alone shows that its run ended by a GPU out-of-memory: by the program's
    own exit, not by a signal, as a preempted or cancelled run ends."""
    if report is None or not report.oom:
        return False
    return 0 < (report.exit_code or 0) < SIGNALLED and not report.signal


def judge_ended(view: JobView, report: Report | None) -> Outcome:
    """Outcome of a run that Slurm shows as ended."""
    oom = report is not None and report.oom
    return outcome_of(view, oom=oom, overrun=bool(overrun_of(report)))
