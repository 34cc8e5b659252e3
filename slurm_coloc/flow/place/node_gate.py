# SPDX-License-Identifier: Apache-2.0
"""Stage place: keeps each GPU node's SM activity in its Extra, for Slurm's own gate (native), and
for jobs that wait at the gate without losing their age (steered, flow/place/gate_wait)."""

import time
from collections.abc import Collection
from dataclasses import replace

import structlog

from slurm_coloc.core.decide.decision import Action
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.core.place.gate_wait import Way, way_of
from slurm_coloc.core.place.node_gate import (
    PARAMETER,
    SHUT_PCT,
    constraint_below,
    due,
    level,
    numbers,
    present,
    written,
)
from slurm_coloc.core.slurm.binding import NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape, plain
from slurm_coloc.core.slurm.gres import count_of, parse_gres
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context, ShareRequest
from slurm_coloc.flow.place.snapshot import Closed

log = structlog.get_logger()


class NodeGate:
    """Keeps the figures in the nodes' Extra. ``carry``: the numbers of the nodes that had the keys
    when they were last read."""

    def __init__(self, context: Context, closed: Closed = lambda: ()) -> None:
        """``closed``: UUIDs of closed GPUs."""
        self._closed, self._off = closed, context.off
        self._place = context.config.placement
        self._slurm, self._live, self._shape = context.slurm, context.live, context.shape
        self._warned = False
        self._clean = False
        self.carry: dict[str, int] = {}

    def _serves(self, shape: ClusterShape) -> bool:
        if self._place.mode == "steered":
            return way_of(shape) is Way.EXTRA
        if self._place.node_gate and not shape.constraints and not self._warned:
            self._warned = True
            log.warning("place", result="no gate by node", reason=f"slurm.conf lacks {PARAMETER}")
        return self._place.node_gate and shape.constraints

    async def round(self, uses: tuple[NodeUse, ...] | None = None) -> None:
        """Write the figures that changed; ``uses`` None: read the nodes first. Without the gate,
        set each node's figure to 0 once, since a missing key would shut the node to jobs that ask
        for it. Raises SlurmError."""
        shape = self._shape()
        if shape is None:
            return
        on = self._serves(shape) and not self._off()
        if not on and self._clean:
            return
        nodes = {node.name: node for node in shape.nodes}
        uses = await self._slurm.usage() if uses is None else uses
        extras = {use.name: use.extra for use in uses if use.name in nodes}
        named = numbers(extras)
        carry = {}
        for name, extra in extras.items():
            if not on and not present(extra):
                continue
            pct = self._level(nodes[name], extra) if on else 0
            gate_pct = round(100 * self._place.smact_gate)
            if not due(extra, pct, named[name], gate_pct) or await self._write(
                name, pct, named[name]
            ):
                carry[name] = named[name]
        self.carry = carry if on else {}
        self._clean = not on

    async def _write(self, name: str, pct: int, number: int) -> bool:
        """Write one node's figure; false where that failed. Raises SlurmError without slurmctld."""
        try:
            # Read again, so that an administrator's recent change is not lost.
            text = written(await self._slurm.node_extra(name), pct, number)
            if text is None:
                return False
            await self._slurm.set_node_extra(name, text)
        except SlurmError as err:
            if err.away:
                raise
            log.warning("place", node=name, error=err.message)
            return False
        log.info("place", node=name, smact_pct=pct)
        return True

    def _level(self, node: NodeShape, extra: str) -> int:
        if self._live.awaited(node.name, self._place.stale_s):
            return present(extra) or 0  # a restart of colocd opens no gate
        beat = self._live.of(node.name)
        if beat is None or time.time() - beat[0] > self._place.stale_s:
            return 0  # not known: open
        if self._place.mode == "steered":
            return SHUT_PCT  # colocd judges each job; the key only shows that it is fresh
        closed = self._closed()  # they count as fully busy
        return level(1.0 if gpu.uuid in closed else gpu.smact for gpu in beat[1][: node.gpus])

    async def close(self) -> None:
        """Open all nodes when colocd ends: nothing keeps the figures fresh then."""
        try:
            for use in await self._slurm.usage() if self.carry else ():
                if use.name in self.carry and (text := written(use.extra, 0)):
                    await self._slurm.set_node_extra(use.name, text)
        except SlurmError as err:
            log.warning("place", result="the nodes' agents open them", error=err.message)

    def constraint(
        self, nodes: Collection[str], pct: int, shards: int, cpus: int = 1, memory_mib: int = 0
    ) -> str | None:
        """The constraint of a share that waits until one of these nodes shows a figure below
        ``pct``. Only nodes large enough for it count. None without any, or where one has no key."""
        shape = self._shape()
        fitting = [
            node.name
            for node in (shape.nodes if shape else ())
            if node.name in nodes
            and node.shards_per_gpu >= shards
            and node.cpus >= cpus
            and (node.memory_mib >= memory_mib or not node.memory_mib)
        ]
        if not all(name in self.carry for name in fitting):
            return None
        return constraint_below(pct, [self.carry[name] for name in fitting])

    def at_submit(self, job: ShareRequest, nodes: Collection[str]) -> Rewrite:
        """The change of a share's request with Slurm's own gate (native), where every node of
        ``nodes`` that it may get has the keys."""
        request, change = job.request, job.change
        wanted = parse_gres(str(change.fields.get("tres_per_node", "")))
        shards = count_of(str(change.fields.get("tres_per_node", "")), "shard")
        if (
            self._place.mode != "native"
            or not shards
            or len(wanted) != 1
            or job.decision.action is not Action.COLLOCATE
            or (request.min_nodes or 1) > 1
            or request.reservation
            or not plain(request.features)
        ):
            return change  # the nodes it may get are not judged here
        gate_pct = round(100 * self._place.smact_gate)
        text = self.constraint(
            nodes, gate_pct, shards, request.min_cpus or 1, request.min_mem_per_node or 0
        )
        return replace(change, fields={**change.fields, "extra": text}) if text else change
