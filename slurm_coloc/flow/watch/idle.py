# SPDX-License-Identifier: Apache-2.0
"""Stage watch: jobs that hold a GPU and do not use it, as the nodes' agents report them.

A job's owner is told in its output, once for each idle spell. Where the site has set a time the job
is warned and then cancelled (core/time/idle). What was done stands in the job's events, which
`coloc explain` shows, so a colocd that starts again goes on with it.
"""

import time

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.runs import Key, Run
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.core.time.idle import IdleRule, Step, left_s, next_step
from slurm_coloc.core.time.slot import words
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.cluster.telemetry import IdleRun
from slurm_coloc.flow.recover.retry_limit import notify

log = structlog.get_logger()

# An agent says what is idle every agent.beat_s, 30 s at most; what an older word says may be over.
FRESH_S = 35.0
AGAIN_S = 60.0  # until a job that is still there is cancelled again: slurmctld may have been away
CLOCKS_S = 60.0  # that clocks of hosts may differ
#: kinds of events
NOTED, WARNED, CANCELLED = "idle", "idle-warned", "idle-cancelled"
_HELD = "coloc: this job holds a GPU and has not used it for"


class IdleJobs:
    """Acts on idle jobs, by the site's rule."""

    def __init__(self, context: Context) -> None:
        self._config = context.config.idle
        self._store, self._slurm = context.store, context.slurm
        self._live, self._off = context.live, context.off
        # Of each run that is idle, once Slurm was asked what kind of job it is.
        self._rule: dict[Key, IdleRule] = {}

    async def round(self) -> None:
        """One step for every run that is idle now."""
        idle = self._live.idle(FRESH_S)
        here = {(one.job_id, one.restart) for _, one in idle}
        self._rule = {key: rule for key, rule in self._rule.items() if key[1:] in here}
        for node, one in idle:
            for run in self._store.runs.of_job(one.job_id):
                if run.open and run.restart == one.restart:
                    try:
                        await self._advance(run, node, one)
                    except SlurmError as err:
                        log.warning("idle", jobid=one.job_id, error=err.message)

    async def _advance(self, run: Run, node: str, one: IdleRun) -> None:
        now_s = time.time()
        # Seconds that count against it, and whether it was warned in these.
        counts_s = one.since_s if self._config.trust_split else one.certain_s
        idle_s = now_s - counts_s if counts_s is not None else 0.0
        events = self._store.events(run.decision, run.job_id)
        done = {event.kind: event.at_s for event in events if event.at_s >= one.since_s}
        is_warned = WARNED in done and counts_s is not None and done[WARNED] >= counts_s
        warned_s = now_s - done[WARNED] if is_warned else None

        def due(rule: IdleRule) -> Step:
            if counts_s is None:  # nothing that a job may be cancelled for
                rule = IdleRule(rule.tell)
            return next_step(rule, idle_s, NOTED in done, warned_s)

        decision = self._store.decisions.of(run.decision)
        may = decision is not None and decision.mode == "on" and not self._off()
        known = self._rule.get(run.key)
        rules = (known,) if known else self._rules()
        view = None
        left = now_s - done.get(CANCELLED, 0.0) >= AGAIN_S  # not cancelled a moment ago
        if may and left and any(due(rule) is not Step.WAIT for rule in rules):
            view = await self._slurm.job(run.job_id)
        step = Step.WAIT
        if view is not None and _is_running(view, run):
            rule = self._rule[run.key] = self._rule_of(view)
            step = due(rule)
        shown = _duration(now_s - one.since_s)
        if step is Step.TELL and view is not None:  # again, where slurmctld is away
            await self._write(view, f"{_HELD} {shown}")
        if NOTED not in done:
            text = f"holds {one.held_mib} MiB on {node} and has used no GPU for {shown}"
            self._note(run, NOTED, text)
            log.info("idle", jobid=run.job_id, node=node, held_mib=one.held_mib)
        if step in (Step.WARN, Step.CANCEL) and view is not None:
            await self._do(step, rule, run, view, idle_s)

    def _rules(self) -> tuple[IdleRule, IdleRule]:
        found = self._config
        return (
            IdleRule(found.tell, found.cancel_after_s, found.warn_s),
            IdleRule(found.tell, found.cancel_interactive_after_s, found.warn_s),
        )

    def _rule_of(self, view: JobView) -> IdleRule:
        """The rule for this job. A job on several nodes may wait on one of them for the others, so
        it is told at most."""
        batch, interactive = self._rules()
        if view.partition in self._config.spared_partitions or _on_several(view.nodes):
            return IdleRule(self._config.tell)
        if not view.batch or view.partition in self._config.interactive_partitions:
            return interactive
        return batch

    async def _do(self, step: Step, rule: IdleRule, run: Run, view: JobView, idle_s: float) -> None:
        held = f"{_HELD} {_duration(idle_s)}"
        if step is Step.WARN:
            minutes = _duration(left_s(rule, idle_s))
            await self._write(view, f"{held}: it is cancelled in {minutes} if it stays so")
            self._note(run, WARNED, f"its owner was warned: cancelled in {minutes} if still idle")
        else:
            # Noted first: if colocd stops here, the end of the job has its reason all the same.
            self._note(
                run, CANCELLED, f"cancelled by the site's rule: idle for {_duration(idle_s)}"
            )
            await notify(self._slurm, view, f"{held}: it is cancelled now, by this site's rule")
            await self._slurm.cancel(view.handle)
            log.warning("idle", jobid=run.job_id, result="cancelled", idle_s=round(idle_s))

    async def _write(self, view: JobView, line: str) -> None:
        """Into the job's output. Raises SlurmError where slurmctld is away: it is written later
        then. A job that cannot be told anything (Slurm refuses) counts as told."""
        try:
            await self._slurm.notify(view.handle, line)
        except SlurmError as err:
            if err.away:
                raise
            log.warning("notify", jobid=view.job_id, error=err.message)

    def _note(self, run: Run, kind: str, text: str) -> None:
        self._store.note(run.decision, run.job_id, kind, text)


def cancelled(store: Store, run: Run) -> bool:
    """Whether a run that was cancelled was so for being idle."""
    events = store.events(run.decision, run.job_id)
    return any(
        event.kind == CANCELLED and event.at_s >= (run.start_s or 0.0) - CLOCKS_S
        for event in events
    )


def _duration(seconds: float) -> str:
    return words(seconds if seconds < 120 else 60 * round(seconds / 60))


def _is_running(view: JobView, run: Run) -> bool:
    same = view.decision == run.decision and view.restarts == run.restart
    return same and view.state == "RUNNING" and not view.completing


def _on_several(nodes: str) -> bool:
    return "," in nodes or "[" in nodes
