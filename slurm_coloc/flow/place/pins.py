# SPDX-License-Identifier: Apache-2.0
"""Stage place: pins waiting shared jobs to the GPU that the policy chooses (mode steered).

A pin is the job's own request, ``gres/shard:TYPE:N`` and the node, so nothing of it can be lost:
what Slurm shows is where colocd goes on. Every look is recorded where it changed something.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import structlog

from slurm_coloc.adapters.ring import Ring
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.core.place.queue_order import QueueOrder, queue_order
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steerable import refusals
from slurm_coloc.core.place.steering import Act, Answer, Pin, Snapshot, Waiting, Why, steer
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.binding import NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, wanted_partitions
from slurm_coloc.core.slurm.gres import count_of, with_item, without
from slurm_coloc.core.slurm.job import decision_in
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS
from slurm_coloc.errors import ConfigError, SlurmError, UsageFault
from slurm_coloc.flow.cluster.context import Context, ShareRequest
from slurm_coloc.flow.place.gate_wait import GateWait
from slurm_coloc.flow.place.memory import Memory, key
from slurm_coloc.flow.place.node_gate import NodeGate
from slurm_coloc.flow.place.recording import recorded
from slurm_coloc.flow.place.snapshot import Closed, Sources, is_steered
from slurm_coloc.flow.place.submissions import as_waiting, joined, simple
from slurm_coloc.policies import fresh, policy

log = structlog.get_logger()

# A submission is placed at once where no more jobs wait and there are no more GPUs: that takes some
# milliseconds. By the policy itself, or by the greedy one where that plans ahead.
AT_SUBMIT, QUICK = 64, "interference"
# One that Slurm does not show after so many seconds never became a job.
UNSEEN_S = 3.0
TOLD = {
    Why.STALE: "what its node's agent said last is too old",
    Why.CLOSED: "its node is closed",
    Why.NO_ROOM: "there is no room on any GPU that it may get",
    Why.GATE: "every GPU with room is too busy",
    Why.BEHIND: "a job before it waits for those GPUs",
    Why.WHOLE: "a job before it waits for a whole GPU there",
    Why.GAVE_UP: "it has waited long enough",
    Why.ENOUGH: "others come first",
    Why.NOT_YET: "Slurm would not start it now",
    Why.BOUND: "on every GPU with room it or a job there would be slower than was asked for",
}


class Placer:
    """Looks at the queue, asks the policy, and changes requests."""

    def __init__(self, context: Context, gate: NodeGate, closed: Closed = lambda: ()) -> None:
        """``gate``: the figures in the nodes' Extra; ``closed``: UUIDs of GPUs that take no further
        job. Raises ConfigError for a policy that there is not."""
        try:
            self._policy: Policy = policy(context.config.placement.policy)
        except UsageFault as err:
            raise ConfigError(f"placement.policy: {err.message}") from err
        self._config, self._store, self._slurm = context.config, context.store, context.slurm
        self._off, self._shape, self._limits = context.off, context.shape, context.limits
        self._steers = self._config.placement.mode == "steered"
        self._memory = Memory()
        self.gate_wait = GateWait(context, self._memory, gate)
        self._sources = Sources(self._config, self._store, context.live, self._memory, closed)
        self._ring = Ring(self._config.daemon.state_dir / "placement")
        self._turn = 0
        self._last: Snapshot | None = None
        # Pinned at submission: when, and by which decision.
        self._sent: list[tuple[float, str, Waiting]] = []
        self._clean = False  # native: no job was found pinned
        self._refused = ""
        self._writes: set[asyncio.Task[Path]] = set()

    def _line(self, shape: ClusterShape) -> QueueOrder:
        return queue_order(shape, self._limits() or NO_LIMITS)

    def _stopped(self, shape: ClusterShape) -> bool:
        """Whether this cluster cannot be steered, or nothing is left to do."""
        if not any(node.devices for node in shape.nodes):
            return True
        found = "; ".join(refusals(shape, self._limits() or NO_LIMITS))
        if self._steers and found != self._refused:
            log.warning("place", result="not steered", reason=found) if found else None
            self._refused = found
        return not self._steers and self._clean

    def _awaits(self, shape: ClusterShape) -> bool:
        """Whether colocd began a moment ago, and the agents are not all back. Until then nobody is
        let go for want of figures."""
        return any(
            self._sources.live.awaited(node.name, self._config.placement.stale_s)
            for node in shape.nodes
            if node.usable and is_steered(node, self._config)
        )

    async def round(self) -> tuple[tuple[NodeUse, ...], list[Queued]] | None:
        """One look, and what follows from it; what Slurm showed, None where it was not asked.
        Raises SlurmError."""
        shape = self._shape()
        if shape is None or self._off() or self._stopped(shape) or self._awaits(shape):
            self._last = None
            return None
        uses, queue = await asyncio.gather(self._slurm.usage(), self._slurm.queue())
        snapshot = self._sources.snapshot(shape, uses, queue, self._line(shape), self._turn)
        if self._refused:
            snapshot = replace(
                snapshot, nodes=tuple(replace(node, steered=False) for node in snapshot.nodes)
            )
        # In a thread: a large cluster takes a good part of a second, and submissions wait.
        answers, self._turn = await asyncio.to_thread(steer, snapshot, fresh(self._policy))
        jobs = {job.job_id: job for job in queue}
        waiting = {job.job_id: job for job in snapshot.waiting}
        changed = [
            one
            for one in answers
            if await self._apply(shape, one, jobs[one.job_id], waiting[one.job_id])
        ]
        await self._loosen(jobs.values(), {one.job_id for one in answers})
        if changed:
            self._record(snapshot, answers)
        self._clean = not any(job.pin for job in snapshot.waiting) and not self._memory.waits_until
        # Pinned at submission a moment ago, and not seen by Slurm when it was asked.
        shown = {decision_in(job.admin_comment) for job in queue}
        self._sent = [
            one for one in self._sent if one[0] > snapshot.at_s - UNSEEN_S and one[1] not in shown
        ]
        for *_, job in self._sent:
            snapshot = joined(snapshot, job)
        self._last = snapshot if self._steers and not self._refused else None
        return uses, queue

    # one job

    async def _apply(
        self, shape: ClusterShape, answer: Answer, job: Queued, waiting: Waiting
    ) -> bool:
        """Do what was answered; whether that changed anything."""
        first = key(job) not in self._memory.waits_until
        if answer.why is Why.GAVE_UP:
            self._memory.given_up.add(key(job))
        if answer.act in (Act.NATIVE, Act.UNPIN) or answer.why is Why.WHOLE:
            self._memory.since.pop(key(job), None)
        elif answer.act in (Act.PIN, Act.WAIT):
            self._memory.since.setdefault(key(job), time.time())
        try:
            fields = self._fields(answer, job)
            if answer.act is Act.WAIT:
                fields |= await self.gate_wait.wait(shape, job, waiting)
            else:
                fields |= await self.gate_wait.go(job)
            if not fields:
                return False
            await self._slurm.update(job.handle, **fields)
        except SlurmError as err:
            self.gate_wait.failed(job)
            if err.away:
                raise
            # It has started meanwhile, or was cancelled.
            log.info("place", jobid=job.job_id, act=str(answer.act), error=err.message)
            return False
        self._note(answer, job, fields, first)
        return True

    def _fields(self, answer: Answer, job: Queued) -> dict[str, str | int]:
        """What is to be changed of the job."""
        shards = count_of(job.tres_per_node, "shard")
        fields: dict[str, str | int] = {}
        others = without(job.tres_per_node, "shard")
        if answer.act is Act.PIN and answer.pin is not None:
            fields["TresPerNode"] = with_item(others, f"gres/shard:{answer.pin.kind}:{shards}")
            fields |= self._nodes(job, answer.pin.node)
        elif answer.act in (Act.UNPIN, Act.WAIT) and self._is_pinned(job):
            fields["TresPerNode"] = with_item(others, f"gres/shard:{shards}")
        if answer.pin is None:
            fields |= self._nodes(job, "")
        return fields

    def _is_pinned(self, job: Queued) -> bool:
        shape = self._shape()
        kinds = {kind for node in (shape.nodes if shape else ()) for kind in node.devices}
        return any(f":{kind}:" in job.tres_per_node for kind in kinds)

    def _nodes(self, job: Queued, node: str) -> dict[str, str | int]:
        """ReqNodeList for a pin to ``node`` ("": none); an owner's own choice stays."""
        wanted = self._sources.wanted(job, self._decision(job))
        return {} if wanted or job.req_nodes == node else {"ReqNodeList": node}

    def _decision(self, job: Queued) -> StoredDecision | None:
        found = decision_in(job.admin_comment)
        return self._memory.decisions.get(found) if found else None

    async def _loosen(self, jobs: Iterable[Queued], answered: set[int]) -> None:
        """Jobs of ours that are no shares any more, after a recovery, but still bound to the node
        of their last pin."""
        for job in jobs:
            decision = self._decision(job)
            if not job.waits or not job.req_nodes or job.job_id in answered or decision is None:
                continue
            whole = count_of(job.tres_per_node, "shard") is None
            if whole and self._nodes(job, ""):
                try:
                    await self._slurm.update(job.handle, ReqNodeList="")
                except SlurmError as err:
                    if err.away:
                        raise
                    log.info("place", jobid=job.job_id, error=err.message)

    def _note(self, answer: Answer, job: Queued, fields: dict[str, str | int], first: bool) -> None:
        """``first``: where it waits, it has only begun to."""
        decision = decision_in(job.admin_comment) or ""
        if answer.act is Act.PIN and answer.pin is not None:
            text = self._chosen(answer.pin, answer.text)
        elif answer.act is Act.WAIT:
            if "TresPerNode" not in fields and len(fields) == 1 and not first:
                return
            text = f"waits: {TOLD[answer.why]}"
        else:
            text = f"left to Slurm: {TOLD.get(answer.why, answer.why)}"
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

    def _chosen(self, pin: Pin, text: str) -> str:
        return f"{pin.node} GPU {pin.kind} by {self._config.placement.policy}: {text}"

    def _record(self, snapshot: Snapshot, answers: tuple[Answer, ...]) -> None:
        """Keep the snapshot with its answers; whoever waits for colocd does not wait for a disk."""
        body = recorded(snapshot, answers)
        task = asyncio.create_task(asyncio.to_thread(self._ring.add, body))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    # submissions

    def at_submit(self, submitted: ShareRequest) -> Rewrite:
        """The change of a request with the GPU that the policy chooses now. Without it Slurm might
        start the job before the next look."""
        snapshot, place, shape = self._last, self._config.placement, self._shape()
        request, change = submitted.request, submitted.change
        shards = count_of(str(change.fields.get("tres_per_node", "")), "shard")
        if (
            snapshot is None
            or shape is None
            or time.time() - snapshot.at_s > 2 * place.interval_s + 2
            or not shards
            or not simple(request, submitted.decision)
            or len(snapshot.waiting) > AT_SUBMIT
            or sum(len(node.devices) for node in snapshot.nodes) > AT_SUBMIT
        ):
            return change
        tier = self._line(shape).tier(",".join(wanted_partitions(request, shape)))
        job = as_waiting(submitted, shards, shape, tier, snapshot)
        extended = joined(snapshot, job)
        if hasattr(self._policy, "fresh"):
            # One that plans ahead takes too long for a submission.
            extended = replace(extended, rules=replace(extended.rules, policy=QUICK))
        answers, turn = steer(extended, policy(extended.rules.policy))
        answer = next(one for one in answers if one.job_id == job.job_id)
        fields = dict(change.fields)
        if answer.act is Act.PIN and answer.pin is not None:
            pin, self._turn = answer.pin, turn
            others = without(str(fields["tres_per_node"]), "shard")
            fields["tres_per_node"] = with_item(others, f"gres/shard:{pin.kind}:{shards}")
            if not request.req_nodes:
                fields["req_nodes"] = pin.node
            line = self._chosen(pin, answer.text)
            job = replace(job, pin=pin)
        elif answer.act is Act.WAIT:
            waits = self.gate_wait.at_submit(shape, job)
            if not waits:
                return change
            fields |= waits
            self._memory.begun.add(submitted.decision_id)
            line = f"waits: {TOLD[answer.why]}"
        else:
            return change
        self._record(extended, answers)
        self._sent.append((time.time(), submitted.decision_id, job))
        self._last = joined(snapshot, job)
        self._store.note(submitted.decision_id, None, "place", line)
        return replace(change, fields=fields)
