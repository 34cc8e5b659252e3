# SPDX-License-Identifier: Apache-2.0
"""Stage record: a run has ended; say how, once, and plan its recovery in the same transaction."""

import json
import time

import structlog

from slurm_coloc.adapters.store import Row, Store
from slurm_coloc.config import Config
from slurm_coloc.core.gpu import fence
from slurm_coloc.core.recover.next_try import VICTIMS
from slurm_coloc.core.recover.outcome import WHOSE, Blame, Outcome, Report, outcome_of
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.time.slot import ended_by_slot, slot_from
from slurm_coloc.flow.recover import array_tasks, next_try
from slurm_coloc.flow.submit.decide import rules_of
from slurm_coloc.flow.submit.history import Learning, TypeOf, ended, own_peak
from slurm_coloc.flow.watch import blame
from slurm_coloc.flow.watch.shares import promised_mib, shared

log = structlog.get_logger()

# An Epilog's report may be older than the moment we first saw the job by the clocks' difference.
CLOCK_SLACK_S = 60.0

SIGNALLED = 128  # exit codes from here on are a shell's for a signal
SHOWN = 100  # characters of the log's own line in the story; all of it is in the evidence

TOLD = {
    Outcome.COMPLETED: "completed",
    Outcome.OOM_GPU: "ran out of GPU memory",
    Outcome.OOM_HOST: "ran out of host memory: not caused by sharing the GPU, left alone",
    Outcome.FAILED: "failed for another reason than GPU memory: left alone",
    Outcome.CANCELLED: "cancelled",
    Outcome.TIMEOUT: "reached its time limit: left alone",
    Outcome.PREEMPTED: "preempted: left to Slurm",
    Outcome.NODE_FAIL: "its node failed: left to Slurm",
    Outcome.REQUEUED: "put back into the queue, not by colocd",
    Outcome.PUT_BACK: "put back before it began: its GPU was not fit for it",
    Outcome.SLOT: "left at the end of its time slot, to go on in the next one",
    Outcome.GONE: "no longer known to slurmctld: how it ended was not seen",
}


# Ends that a run has which leaves to go on later: by its exit, or by a requeue of its own.
LEAVES = (Outcome.COMPLETED, Outcome.FAILED, Outcome.REQUEUED)


def says_it_goes_on(body: Row | None) -> bool:
    """Whether the run said in its log that it is to be continued."""
    return bool(body and (body.get("checkpoint") or {}).get("goes_on"))


def report_of(body: Row | None) -> Report | None:
    """The part of an Epilog's report that the outcome is judged by."""
    if body is None:
        return None
    evidence = body.get("evidence") or {}
    return Report(
        oom=bool(evidence.get("oom")),
        kind=str(evidence.get("kind", "")),
        line=str(evidence.get("line", "")),
    )


class Recorder:
    """Closes runs."""

    def __init__(self, config: Config, store: Store, type_of: TypeOf = lambda node: "") -> None:
        """``type_of``: the type of a node's GPUs."""
        self._config = config
        self._store = store
        self._type_of = type_of
        self._learning = Learning(config.estimate, store)
        self._sizing = rules_of(config).sizing

    def body_for(self, run: Row) -> Row | None:
        """The Epilog's report on a run, if it came."""
        body = self._store.reports.newest(run, _since_s(run))
        return body and blame.from_telemetry(self._store, run, body)

    def _left(self, run: Row, decision: Row, outcome: Outcome, body: Row, now: float) -> bool:
        """Whether a run of a job with time slots left at its slot's end, to go on. Where it put
        itself back its Epilog is told the next run's number (22.05), so its log is not known."""
        if outcome in LEAVES and says_it_goes_on(body):
            return True
        row = self._store.slots.of(run["decision"], run["job_id"])
        if outcome is not Outcome.REQUEUED or row is None or not run["start_s"]:
            return False
        signalled = row["restart"] == run["restart"] and row["signalled_s"] is not None
        slot = slot_from(decision["slot"])
        return ended_by_slot(signalled, False, now - run["start_s"], slot)

    def in_slots(self, run: Row) -> bool:
        """Whether the run is of a job with time slots."""
        decision = self._store.decision(run["decision"])
        return decision is not None and decision["slot"] is not None

    def late(self, job_id: int) -> None:
        """A report came; where its run is closed already, another of its nodes told first: what
        this one used is added."""
        for run in self._store.runs_of_job(job_id):
            if run["open"]:
                continue
            uses = self._store.reports.uses(run, _since_s(run))
            if len(uses) > len(json.loads(run["used"] or "[]")):
                with self._store.transaction():
                    self._store.keep_uses(run, uses)
                    self._store.reports.use(run)

    def end(self, run: Row, outcome: Outcome, view: JobView | None, body: Row | None) -> None:
        """Close ``run`` and plan its recovery where that is due; safe to call twice."""
        decision = self._store.decision(run["decision"])
        if decision is None:
            return
        now = time.time()
        body = body or {}
        if decision["slot"] and self._left(run, decision, outcome, body, now):
            outcome = Outcome.SLOT
        evidence = body.get("evidence")
        share_mib = promised_mib(run, decision)
        over = ended(run, view, (view.end_s if view else None) or now, share_mib)
        uses = self._store.reports.uses(run, _since_s(run))
        began = outcome is not Outcome.PUT_BACK
        peak = own_peak(self._store, over, decision, body, uses) if began else None
        fault, why = blame.of(self._store, over, outcome, body, uses)
        need = next_try.need_of(evidence, peak.peak_mib if peak else None, uses)
        recovery = self._config.recovery
        found = next_try.after(self._store, recovery, over, decision, outcome, fault, need, now)
        # Only a recovery must survive a loss of power: a write that waits for the disk delays the
        # submissions that come meanwhile.
        with self._store.transaction(durable=found.verdict.puts_back):
            closed = self._store.close_run(
                run,
                state=view.state if view else run["state"],
                outcome=str(outcome),
                exit_code=view.exit_code if view else body.get("exit_code"),
                end_s=over["end_s"],
                peak_mib=peak.peak_mib if peak else None,
                used=json.dumps(uses) if uses else None,
                blame=str(fault) if fault else None,
                method=body.get("method"),
                gpu_uuids=_gpus(run, body),
                evidence=json.dumps(evidence) if evidence else None,
                share_mib=share_mib,
                verdict=str(found.verdict),
            )
            if not closed:
                return
            self._store.reports.use(run)
            holder = fence.met(
                body.get("method"), body.get("fence"), (evidence or {}).get("line", "")
            )
            limit = f" at its own limit of {share_mib / 1024:.1f} GiB, {holder}" if holder else ""
            self._tell(run, outcome, found, evidence, limit if share_mib else "", now)
            self._blame(run, fault, why, now)
            gpu, victim = self._type_of(run["node"]), fault in VICTIMS
            self._learning.note(over, decision, outcome, peak, uses, gpu, victim=victim)
            self._plan(over, decision, view, found, now)
            if fault is Blame.MPS_FAULT:
                self._amend(over, body, now)
            if shared(run, decision) and recovery.resize_siblings:
                rule = self._sizing
                array_tasks.plan(self._store, run, decision, view, outcome, rule, found.grown)
        log.info(
            "ended",
            jobid=run["job_id"],
            restart=run["restart"],
            decision=run["decision"],
            outcome=str(outcome),
            verdict=str(found.verdict),
        )

    def _tell(
        self,
        run: Row,
        outcome: Outcome,
        found: next_try.Next,
        evidence: Row | None,
        limit: str,
        now: float,
    ) -> None:
        """``limit``: the fence around the run, in words; "" where there was none."""
        text = TOLD[outcome]
        if outcome is Outcome.OOM_GPU:
            text += limit
        caught = outcome is Outcome.COMPLETED and evidence and evidence.get("oom")
        if caught:
            text += ", although its log shows a GPU out-of-memory (caught by the program)"
        if outcome is Outcome.OOM_GPU and evidence:
            line = str(evidence.get("line", ""))
            text += f" ({line[:SHOWN]}{'...' if len(line) > SHOWN else ''})"
        if outcome is Outcome.FAILED and found.cause in VICTIMS:
            text = _failed_by(Blame(found.cause))
        if (outcome is Outcome.OOM_GPU or found.tres) and not found.verdict.puts_back:
            text += f"; {next_try.why_not(found)}"
        self._store.note(now, run["decision"], run["job_id"], "ended", text)

    def _blame(self, run: Row, fault: Blame | None, why: str, now: float) -> None:
        if fault and fault is not Blame.UNKNOWN:
            text = next_try.whose(fault, why)
            self._store.note(now, run["decision"], run["job_id"], "blame", text)

    def _plan(
        self, run: Row, decision: Row, view: JobView | None, found: next_try.Next, now: float
    ) -> None:
        if found.verdict.puts_back:
            next_try.plan(self._store, self._config.recovery, run, view, found, now)
            text = next_try.words(found, decision)
            self._store.note(now, run["decision"], run["job_id"], "recover", text)

    def _amend(self, run: Row, body: Row, now: float) -> None:
        """Runs on the GPUs of ``run`` that ended shortly before it by a fault that seemed their
        own: the first client of a server to be judged cannot know of the others."""
        mine = set(body.get("gpu_uuids") or ())
        for other in self._store.reports.unblamed(blame.beside_since_s(run)):
            decision = self._store.decision(other["decision"])
            if decision is None or not mine & set(json.loads(other["gpu_uuids"] or "[]")):
                continue
            fault, outcome = Blame.MPS_FAULT, Outcome(other["outcome"])
            found = next_try.after(
                *(self._store, self._config.recovery, other, decision, outcome, fault),
                next_try.need_of(None, None, []),
                now,
            )
            self._store.reports.blame(other, str(fault), str(found.verdict))
            # The story said "left alone" of it.
            told = _failed_by(fault)
            self._store.note(now, other["decision"], other["job_id"], "ended", told)
            why = f"job {run['job_id']} on the same server ended by it too"
            self._blame(other, fault, why, now)
            self._plan(other, decision, None, found, now)


def _failed_by(fault: Blame) -> str:
    """How the story calls the end of a run that failed by ``fault``."""
    return f"failed, {WHOSE[fault]}"


def _since_s(run: Row) -> float:
    """Reports from before are another job's of that id."""
    return float(run["submit_s"] or 0.0) - CLOCK_SLACK_S


def _gpus(run: Row, body: Row) -> str | None:
    """The GPUs of a run: those that its Prologs told, and those of the Epilog's report."""
    known = json.loads(run.get("gpu_uuids") or "[]")
    found = list(dict.fromkeys([*known, *(body.get("gpu_uuids") or ())]))
    return json.dumps(found) if found else None


def out_of_memory(view: JobView, body: Row | None) -> bool:
    """Whether a job that is still COMPLETING ran out of GPU memory for certain, so that its
    recovery may begin before the jobs that depend on it see it fail."""
    report = report_of(body)
    if not view.completing or view.state != "FAILED" or report is None:
        return False
    return outcome_of(view, report) is Outcome.OOM_GPU


def leaves(view: JobView, body: Row | None) -> bool:
    """Whether a job that is still COMPLETING asked to go on later by its exit, so that it may be
    put back before the jobs that depend on it see it end."""
    return view.completing and view.state in ("FAILED", "COMPLETED") and says_it_goes_on(body)


def ran_out(body: Row | None) -> bool:
    """Whether the report alone tells that its run ended by a GPU out-of-memory: by the program's
    own exit, not by a signal as a preempted or cancelled one."""
    report = report_of(body)
    if body is None or report is None or not report.oom:
        return False
    code = body.get("exit_code") or 0
    return 0 < code < SIGNALLED and not body.get("signal")


def judge_ended(view: JobView, body: Row | None) -> Outcome:
    """Outcome of a run that Slurm shows as ended."""
    return outcome_of(view, report_of(body))
