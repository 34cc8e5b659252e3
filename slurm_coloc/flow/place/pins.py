# SPDX-License-Identifier: Apache-2.0
"""Stage place: pins waiting shared jobs to the GPU that the policy chooses (mode steered).

A pin stands in the job's own request, ``gres/shard:TYPE:N`` and the node, so it cannot be lost:
colocd goes on from what Slurm shows. A round that changes something is recorded.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

import structlog

from slurm_coloc.adapters.ring import Ring
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.core.place.queue_order import queue_order
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steerable import refusals
from slurm_coloc.core.place.steering import Act, Answer, Pin, Rules, Snapshot, Waiting, Why, steer
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.binding import NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.gres import count_of
from slurm_coloc.core.slurm.job import decision_in
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS
from slurm_coloc.errors import ConfigError, SlurmError, UsageFault
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.place.at_submit import AtSubmit, Latest, answered
from slurm_coloc.flow.place.changes import Subject, owners_nodes
from slurm_coloc.flow.place.gate_wait import GateWait
from slurm_coloc.flow.place.job_facts import Activities, JobFacts
from slurm_coloc.flow.place.memory import Memory, key
from slurm_coloc.flow.place.node_gate import NodeGate
from slurm_coloc.flow.place.plan import Plan
from slurm_coloc.flow.place.recording import Recording
from slurm_coloc.flow.place.snapshot import Closed, Sources, is_steered
from slurm_coloc.policies import fresh, policy

log = structlog.get_logger()


def unsteered(snapshot: Snapshot) -> Snapshot:
    """The snapshot where no job may be pinned."""
    waiting = (replace(job, nodes=()) if job.ours else job for job in snapshot.waiting)
    return replace(snapshot, waiting=tuple(waiting))


class Placer:
    """Reads the queue, asks the policy, and changes requests."""

    def __init__(
        self,
        context: Context,
        gate: NodeGate,
        closed: Closed = lambda: (),
        activities: Activities = dict,
    ) -> None:
        """``closed``: UUIDs of closed GPUs; ``activities``: of runs beside others. Raises
        ConfigError for an unknown policy."""
        try:
            self._policy: Policy = policy(context.config.placement.policy)
        except UsageFault as err:
            raise ConfigError(f"placement.policy: {err.message}") from err
        self._config, self._store, self._slurm = context.config, context.store, context.slurm
        self._off, self._shape, self._limits = context.off, context.shape, context.limits
        self._steers = self._config.placement.mode == "steered"
        self._memory = Memory(self._config.placement.interval_s)
        self.gate_wait = GateWait(context, self._memory, gate)
        wish = self._config.placement.plan
        facts = None
        if wish != "off":
            window_s = self._config.agent.window_s
            facts = JobFacts(self._store, context.live, window_s, activities)
        self._plan = Plan(wish, self._policy)
        self._sources = Sources(
            self._config, self._store, context.live, self._memory, closed, facts
        )
        self._recording = Recording(Ring(self._config.daemon.state_dir / "placement"))
        self._latest = Latest()
        self.submitting = AtSubmit(
            context, self._policy, self._latest, self._memory, self.gate_wait, self._recording
        )
        self._clean = False  # native, or off: no job was found pinned
        self._refused = ""

    def _stopped(self, shape: ClusterShape, steers: bool) -> bool:
        """Whether there is nothing to steer: no node has GPUs with types of their own, or placement
        is native or off and no pin is left."""
        if not any(node.devices for node in shape.nodes):
            return True
        found = "; ".join(refusals(shape, self._limits() or NO_LIMITS))
        if steers and found != self._refused:
            log.warning("place", result="not steered", reason=found) if found else None
            self._refused = found
        return not steers and self._clean

    def _awaits(self, shape: ClusterShape) -> bool:
        """Whether colocd has just started and some agents have not reported yet. Until then no job
        is released for lack of figures."""
        return any(
            self._sources.live.awaited(node.name, self._config.placement.stale_s)
            for node in shape.nodes
            if node.usable and is_steered(node, self._config)
        )

    @property
    def interval_s(self) -> float:
        """Seconds from one round to the next."""
        return self._memory.interval_s

    def forget_shares(self) -> None:
        """What jobs on whole GPUs get with their pin was noted anew (flow/recover/array_tasks)."""
        self._memory.unpinned.clear()

    async def round(self) -> tuple[tuple[NodeUse, ...], list[Queued]] | None:
        """One round; returns what Slurm showed, None where it was not asked. Raises SlurmError."""
        shape, steers = self._shape(), self._steers and not self._off()
        if shape is None or self._stopped(shape, steers) or self._awaits(shape):
            self._latest.snapshot = None
            return None
        began_s = time.monotonic()
        uses, queue = await asyncio.gather(self._slurm.usage(), self._slurm.queue())
        turn = self._latest.turn
        order = queue_order(shape, self._limits() or NO_LIMITS)
        snapshot = await self._sources.snapshot(shape, uses, queue, order, turn)
        steers = steers and not self._refused
        self._plan.know(self._store)
        # In a thread: on a large cluster it takes a good part of a second, and submissions wait.
        change = self._plan.of if steers else unsteered
        snapshot = await asyncio.to_thread(change, snapshot)
        answers, self._latest.turn = await asyncio.to_thread(steer, snapshot, fresh(self._policy))
        jobs = {job.job_id: job for job in queue}
        changed = await self._apply_all(shape, snapshot, answers, jobs)
        await self._loosen(jobs.values(), {one.job_id for one in answers})
        if changed:
            self._recording.add(snapshot, answers)
        self._latest.renew(answered(snapshot, answers) if steers else None, queue)
        pins = any(job.pin for job in snapshot.waiting) or self._latest.sent
        self._clean = not (steers or pins or self._memory.waits_until)
        self._memory.paced(self._config.placement.interval_s, time.monotonic() - began_s)
        return uses, queue

    # one job

    async def _apply_all(
        self,
        shape: ClusterShape,
        snapshot: Snapshot,
        answers: tuple[Answer, ...],
        jobs: Mapping[int, Queued],
    ) -> bool:
        """Carry out the answers; whether that changed anything. Pins that are lost come first: who
        comes to a GPU counts on them. When a job has started meanwhile, nothing that was planned
        around it is sure, and what is pinned by now waits for the next round."""
        waiting = {job.job_id: job for job in snapshot.waiting}
        changed = surprised = False
        for answer in sorted(answers, key=lambda one: one.act is Act.PIN):
            job = waiting[answer.job_id]
            if surprised and answer.act is Act.PIN and job.guarded(snapshot.rules):
                continue
            subject = self._subject(jobs[answer.job_id], job, snapshot.rules)
            done = await self._apply(shape, answer, subject)
            changed, surprised = changed or bool(done), surprised or done is None
        return changed

    def _subject(self, job: Queued, waiting: Waiting, rules: Rules) -> Subject:
        decision = self._decision(job)
        wanted = owners_nodes(self._store, job, decision)
        return Subject(job, waiting, wanted, decision.exclusive_tres if decision else "", rules)

    async def _apply(self, shape: ClusterShape, answer: Answer, subject: Subject) -> bool | None:
        """Carry out an answer; whether that changed anything, None where Slurm refused it."""
        job = subject.job
        if answer.why is Why.GAVE_UP:
            self._memory.given_up.add(key(job))
            if answer.act is Act.PIN:  # each GPU is tried for as long
                self._memory.since.pop(key(job), None)
        if answer.act in (Act.NATIVE, Act.UNPIN) or answer.why in (Why.WHOLE, Why.PLANNED):
            self._memory.since.pop(key(job), None)
        elif answer.act in (Act.PIN, Act.WAIT):
            self._memory.since.setdefault(key(job), time.time())
        try:
            fields = subject.fields(answer, shape)
            if answer.act is Act.WAIT:
                fields |= await self.gate_wait.wait(shape, job, subject.waiting, answer.why)
            else:
                fields |= await self.gate_wait.go(job)
            if fields:
                await self._slurm.update(job.handle, **fields)
        except SlurmError as err:
            self.gate_wait.failed(job)
            if err.away:
                raise
            # The job has started meanwhile, or was cancelled.
            log.info("place", jobid=job.job_id, act=str(answer.act), error=err.message)
            return None
        asks = not fields.keys().isdisjoint(("TresPerNode", "TresPerTask"))
        if asks:
            self._memory.unpinned.pop(key(job), None)  # read again in its events
        if answer.act is Act.WAIT:
            held = key(job) in self._memory.waits_until
            news = held and self._memory.is_news(job, answer.why)
        else:
            self._memory.said.pop(key(job), None)
            news = bool(fields)
        if news or asks or len(fields) > 1:
            self._note(answer, subject)
        return bool(fields)

    def _decision(self, job: Queued) -> StoredDecision | None:
        found = decision_in(job.admin_comment)
        return self._memory.decisions.get(found) if found else None

    def _note(self, answer: Answer, subject: Subject) -> None:
        """Note the answer in the job's events."""
        job, policy = subject.job, self._config.placement.policy
        decision = decision_in(job.admin_comment) or ""
        text = subject.text(answer, policy)
        self._store.note(decision, job.job_id, "place", text)
        where = answer.pin or Pin("", "")
        log.info(
            "place",
            jobid=job.job_id,
            decision=decision,
            act=str(answer.act),
            reason=str(answer.why),
            node=where.node,
            gpu=where.kind,
        )

    async def _loosen(self, jobs: Iterable[Queued], answered: set[int]) -> None:
        """Remove the node of the last pin from jobs that ask for whole GPUs after a recovery."""
        for job in jobs:
            decision = self._decision(job)
            if not job.waits or not job.req_nodes or job.job_id in answered or decision is None:
                continue
            whole = count_of(job.tres, "shard") is None
            if whole and not owners_nodes(self._store, job, decision):
                try:
                    await self._slurm.update(job.handle, ReqNodeList="")
                except SlurmError as err:
                    if err.away:
                        raise
                    log.info("place", jobid=job.job_id, error=err.message)
