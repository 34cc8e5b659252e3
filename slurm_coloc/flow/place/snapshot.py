# SPDX-License-Identifier: Apache-2.0
"""Stage place: puts Slurm's nodes and queue, the agents' figures and our own records together into
the snapshot that core/place/steering decides on."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.place.gate_wait import way_of
from slurm_coloc.core.place.queue_order import QueueOrder
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steerable import may_pin
from slurm_coloc.core.place.steering import Device, Node, Running, Snapshot, Waiting
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.binding import NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, keeps_users_apart
from slurm_coloc.core.slurm.job import decision_in
from slurm_coloc.core.slurm.pending import resources_may_bind
from slurm_coloc.flow.cluster.telemetry import GpuNow, Live
from slurm_coloc.flow.place.changes import owners_nodes, unpinned_shards
from slurm_coloc.flow.place.job_facts import JobFacts, owned_training
from slurm_coloc.flow.place.memory import Memory, key
from slurm_coloc.flow.place.requests import (
    NodeLookup,
    gpus_of,
    is_holdable,
    is_pinnable,
    is_typed,
    pin_of,
    place_of_pin,
    shards_of,
    users_without_gpus,
)
from slurm_coloc.flow.place.rules import rules_of

# The most waiting jobs of a snapshot: jobs further back would not start sooner.
MOST = 400
# Nodes and jobs of a snapshot at a time: some milliseconds, then submissions have their turn.
PACE = 100
#: UUIDs of GPUs that are closed by a slowdown limit
Closed = Callable[[], Collection[str]]
T = TypeVar("T")


def is_steered(node: NodeShape, config: Config) -> bool:
    """Whether jobs are pinned on this node."""
    place = config.placement
    return place.mode == "steered" and may_pin(node, config.pool.partitions, place.nodes)


async def _paced(items: Iterable[T]) -> AsyncIterator[T]:
    """The items; submissions are answered in between."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % PACE == 0:
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of a snapshot. ``facts``: where a plan is wanted."""

    config: Config
    store: Store
    live: Live
    memory: Memory
    closed: Closed = lambda: ()
    facts: JobFacts | None = None

    async def snapshot(
        self,
        shape: ClusterShape,
        uses: Sequence[NodeUse],
        queue: Sequence[Queued],
        order: QueueOrder,
        turn: int,
    ) -> Snapshot:
        """What is known now. ``order``: the order of the queue."""
        now, lookup, busy = time.time(), NodeLookup.of(shape), self._busy()
        used = {one.name: one for one in uses}
        asks_gpus = [job async for job in _paced(queue) if gpus_of(job)]
        users = users_without_gpus(queue, asks_gpus, lookup)
        nodes = [
            replace(self._node(node, used[node.name], now), users=users.get(node.name, ()))
            async for node in _paced(shape.nodes)
            if node.name in used
        ]
        waiting = await asyncio.to_thread(order.sort, [job for job in asks_gpus if job.waits])
        self.memory.forget(queue)
        if self.facts is not None:
            self.facts.begin()
        on_nodes = (job for job in asks_gpus if not job.waits and job.nodes)
        running = [self._running(job, lookup, now) async for job in _paced(on_nodes)]
        wait = [
            self._waiting(job, lookup, busy, now, order.tier(job.partition))
            async for job in _paced(await self._foremost(waiting, now))
        ]
        rules = rules_of(self.config, way_of(shape))
        return Snapshot(now, rules, tuple(nodes), tuple(running), tuple(wait), turn)

    def _node(self, node: NodeShape, use: NodeUse, now: float) -> Node:
        beat = self.live.of(node.name)
        figures = {_place(gpu): gpu for gpu in beat[1]} if beat else {}
        age_s = round(max(0.0, now - beat[0]), 1) if beat else None
        devices, closed = [], self.closed()
        for place, gpu in enumerate(use.gpus):
            figure = figures.get(place)
            devices.append(
                Device(
                    node.devices[place] if node.devices else f"{node.gpu_type or 'gpu'}/{place}",
                    gpu.shards,
                    gpu.shards_used,
                    gpu.whole,
                    age_s if figure else None,
                    figure.free_mib if figure else 0,
                    figure.smact if figure else None,
                    closed=figure is not None and figure.uuid in closed,
                    card=figure.name if figure else "",
                )
            )
        return Node(
            node.name,
            tuple(devices),
            steered=is_steered(node, self.config),
            open=use.usable and not use.held_back,
            cpus=max(0, use.cpus - use.cpus_used),
            memory_mib=max(0, use.memory_mib - use.memory_used_mib),
        )

    def _decision(self, comment: str) -> StoredDecision | None:
        found = decision_in(comment)
        if found is None:
            return None
        if found not in self.memory.decisions:
            row = self.store.decisions.of(found)
            if row is None:
                return None
            # Thousands of them are remembered: without what no round reads.
            request = {"req_nodes": row.req_nodes} if row.request else {}
            self.memory.decisions[found] = replace(row, request=request, features={}, learning=None)
        return self.memory.decisions[found]

    def _running(self, job: Queued, lookup: NodeLookup, now: float) -> Running:
        decision = self._decision(job.admin_comment)
        places, held = self._places(job, lookup)
        left_s, smact, training = None, decision.smact if decision else None, ""
        if self.facts is not None and decision is not None:
            training = owned_training(job, decision)
            left_s = self.facts.left_s(job, decision.id, training, now)
            smact = self.facts.smact(job, training) or smact
        return Running(
            job.job_id,
            job.uid,
            job.nodes,
            places,
            shards_of(job),
            job.start_s,
            job.end_s,
            smact,
            held,
            decision.max_slowdown if decision else None,
            job.account,
            left_s,
            training,
        )

    def _places(self, job: Queued, lookup: NodeLookup) -> tuple[tuple[int, ...], int]:
        """The GPUs of its node that a job is on, and the MiB that it holds of the first: by its
        pin, by the node's agent, or by our record of its start."""
        node = lookup.by_name.get(job.nodes)
        if node is None:
            return (), 0
        beat = self.live.of(node.name)
        gpus: Sequence[GpuNow] = beat[1] if beat else ()
        here = {
            _place(gpu): one.mib for gpu in gpus for one in gpu.jobs if one.job_id == job.job_id
        }
        pinned = place_of_pin(job, node)
        if pinned is not None:
            return (pinned,), here.get(pinned, 0)
        if here:
            return tuple(sorted(here)), here[min(here)]
        by_uuid = {gpu.uuid: _place(gpu) for gpu in gpus}
        for run in self.store.runs.of_job(job.job_id):
            if run.restart == job.restarts and run.gpu_uuids:
                return tuple(sorted(by_uuid[one] for one in run.gpu_uuids if one in by_uuid)), 0
        return (), 0

    def _busy(self) -> set[tuple[str, int]]:
        """Jobs that a recovery, a put-back or a change of an array is working on. A put-back that
        only has its node excluded for a while leaves the request alone."""
        puts = [row for row in self.store.putbacks.open() if not (row.excluded and row.delayed)]
        rows = [*self.store.recoveries.open(), *puts]
        return {(row.decision, row.job_id) for row in rows}

    def _waiting(
        self, job: Queued, lookup: NodeLookup, busy: set[tuple[str, int]], now: float, tier: int
    ) -> Waiting:
        decision = self._decision(job.admin_comment)
        gpus, unpinned = gpus_of(job), unpinned_shards(self.store, self.memory, job, decision)
        shards = shards_of(job) or unpinned
        free = decision is not None and (decision.id, job.job_id) not in busy
        ours = free and decision is not None and is_pinnable(job, decision, unpinned)
        wanted = owners_nodes(self.store, job, decision)
        parts = tuple(job.partition.split(","))
        nodes = lookup.nodes_for(parts, job.features, job.exc_nodes, wanted)
        pin = pin_of(job, lookup.shape)
        if pin and free and not ours:  # it may be pinned no longer
            ours, nodes = True, ()
        at_gate = self._waits_at_gate(job, now)
        expected: tuple[float | None, float] = (None, 0.0)
        smact, training = decision.smact if decision else None, ""
        if self.facts is not None and decision is not None:
            training = owned_training(job, decision)
            smact = self.facts.expected_smact(training, nodes) or smact
            expected = self.facts.expected(decision.id, training, job.limit_s)
        since = self.memory.since.get(key(job))
        if since is None and ours and (pin or at_gate):
            since = self.memory.since[key(job)] = now  # after a restart it counts anew
        return Waiting(
            job.job_id,
            job.handle,
            job.uid,
            gpus,
            shards,
            nodes,
            ours=ours,
            startable=self._may_start(job, now),
            pin=pin,
            since_s=since,
            given_up=key(job) in self.memory.given_up,
            run_s=job.limit_s,
            smact=smact,
            cpus=job.cpus,
            memory_mib=job.memory_mib * (job.cpus if job.memory_per_cpu else 1),
            max_slowdown=decision.max_slowdown if decision else None,
            tier=tier,
            account=job.account,
            exclusive_user=keeps_users_apart(parts, lookup.shape),
            expected_s=expected[0],
            spread=expected[1],
            holdable=decision is not None and not shards and is_holdable(job, decision) and free,
            training=training,
        )

    async def _foremost(self, waiting: Sequence[Queued], now: float) -> list[Queued]:
        """The jobs of a snapshot: those that may start come first, and ours that have a pin or wait
        at the gate are always there."""
        able = {job.job_id async for job in _paced(waiting) if self._may_start(job, now)}
        first = set(sorted((job.job_id for job in waiting), key=lambda one: one not in able)[:MOST])
        return [
            job
            async for job in _paced(waiting)
            if job.job_id in first or is_typed(job) or key(job) in self.memory.waits_until
        ]

    def _may_start(self, job: Queued, now: float) -> bool:
        """Whether Slurm, or our gate, keeps the job waiting for nothing but resources."""
        if job.priority == 0 or job.reservation:
            return False
        if resources_may_bind(job.reason) or self._waits_at_gate(job, now):
            return True
        if "GRES" not in job.reason.upper():
            return False
        # The limit may hold it back only because it asks for a whole GPU for now.
        decision = self._decision(job.admin_comment)
        return unpinned_shards(self.store, self.memory, job, decision) > 0

    def _waits_at_gate(self, job: Queued, now: float) -> bool:
        """Whether the job's start time is ours: it waits at the gate. A later one is not."""
        decision = self._decision(job.admin_comment) if job.reason == "BeginTime" else None
        if decision is None:
            return False
        if (job.start_s or now) > now + self.memory.ahead_s + 2:
            self.memory.waits_until.pop(key(job), None)
            self.memory.begun.pop(decision.id, None)
            return False
        if key(job) in self.memory.waits_until:
            return True
        if decision.id in self.memory.begun and job.restarts == 0:
            self.memory.waits_until[key(job)] = job.start_s or now
            return True
        return False


def _place(gpu: GpuNow) -> int:
    return gpu.index if gpu.minor is None else gpu.minor
