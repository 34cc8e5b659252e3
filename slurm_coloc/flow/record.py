# SPDX-License-Identifier: Apache-2.0
"""Stage record: a run has ended; say how, once, and plan its recovery in the same transaction."""

import json
import time

import structlog

from slurm_coloc.adapters.store import Row, Store
from slurm_coloc.config import Config
from slurm_coloc.core import fence
from slurm_coloc.core.blame import WHOSE, Blame
from slurm_coloc.core.job import JobView
from slurm_coloc.core.outcome import Outcome, Report, outcome_of
from slurm_coloc.core.recovery import Caps, Tally, Verdict, judge
from slurm_coloc.core.slices import called
from slurm_coloc.flow import at_fault, siblings
from slurm_coloc.flow.decide import rules_of
from slurm_coloc.flow.learning import Learning, TypeOf, ended, own_peak
from slurm_coloc.flow.shares import promised_mib, shared

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
    Outcome.GONE: "no longer known to slurmctld: how it ended was not seen",
}


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
        return body and at_fault.from_telemetry(self._store, run, body)

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
        evidence = body.get("evidence")
        verdict = self._verdict(run, decision, outcome, now)
        share_mib = promised_mib(run, decision)
        over = ended(run, view, (view.end_s if view else None) or now, share_mib)
        uses = self._store.reports.uses(run, _since_s(run))
        began = outcome is not Outcome.PUT_BACK
        peak = own_peak(self._store, over, decision, body, uses) if began else None
        fault, why = at_fault.of(self._store, over, outcome, body, uses)
        # Only a recovery must survive a loss of power: a write that waits for the disk delays the
        # submissions that come meanwhile.
        with self._store.transaction(durable=verdict is Verdict.REQUEUE):
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
                verdict=str(verdict),
            )
            if not closed:
                return
            self._store.reports.use(run)
            holder = fence.met(
                body.get("method"), body.get("fence"), (evidence or {}).get("line", "")
            )
            limit = f" at its own limit of {share_mib / 1024:.1f} GiB, {holder}" if holder else ""
            self._tell(run, outcome, verdict, evidence, limit if share_mib else "", now)
            if fault and fault is not Blame.UNKNOWN:
                text = f"{WHOSE[fault]}: {why}"
                self._store.note(now, run["decision"], run["job_id"], "blame", text)
            gpu = self._type_of(run["node"])
            self._learning.note(over, decision, outcome, peak, uses, gpu)
            if verdict is Verdict.REQUEUE:
                self._plan(run, decision, now)
            if shared(run, decision) and self._config.recovery.resize_siblings:
                siblings.plan(self._store, run, decision, view, outcome, self._sizing)
        log.info(
            "ended",
            jobid=run["job_id"],
            restart=run["restart"],
            decision=run["decision"],
            outcome=str(outcome),
            verdict=str(verdict),
        )

    def _verdict(self, run: Row, decision: Row, outcome: Outcome, now: float) -> Verdict:
        recovery = self._config.recovery
        tally = Tally(*self._store.tally(run["job_id"], run["decision"], run["uid"], now))
        return judge(
            outcome,
            collocated=shared(run, decision),
            may_requeue=bool(decision["may_requeue"]),
            enabled=recovery.enabled,
            tally=tally,
            caps=Caps(recovery.max_per_job, recovery.max_per_user_day, recovery.max_per_day),
        )

    def _tell(
        self,
        run: Row,
        outcome: Outcome,
        verdict: Verdict,
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
        if outcome is Outcome.OOM_GPU and verdict is not Verdict.REQUEUE:
            text += f"; not requeued: {verdict}"
        self._store.note(now, run["decision"], run["job_id"], "ended", text)

    def _plan(self, run: Row, decision: Row, now: float) -> None:
        self._store.add_work(
            {
                "decision": run["decision"],
                "job_id": run["job_id"],
                "restart": run["restart"],
                "uid": run["uid"],
                "tres": decision["exclusive_tres"],
                "created_s": now,
                "updated_s": now,
            }
        )
        tres = decision["exclusive_tres"]
        text = f"requeue on {called(tres)} planned ({tres})"
        self._store.note(now, run["decision"], run["job_id"], "recover", text)


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
