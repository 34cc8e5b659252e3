# SPDX-License-Identifier: Apache-2.0
"""Stage place, native: keeps each shared node's SM activity in its Extra, for Slurm's own gate."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace

import structlog

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.config import Config
from slurm_coloc.core.cluster import ClusterShape, NodeShape
from slurm_coloc.core.nodegate import FIRST_RELEASE, KEY, PARAMETER, due, level, present, written
from slurm_coloc.core.rewrite import Rewrite
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.gpus import Live
from slurm_coloc.flow.scene import Closed

log = structlog.get_logger()


class NodeGate:
    """``carry``: nodes that have the key, as last seen."""

    def __init__(
        self,
        config: Config,
        slurm: SlurmClient,
        live: Live,
        shape: Callable[[], ClusterShape | None],
        closed: Closed = lambda: (),
    ) -> None:
        """``closed``: UUIDs of GPUs that take no further job. Nothing is asked yet."""
        self._closed = closed
        self._place = config.placement
        self._slurm, self._live, self._shape = slurm, live, shape
        self._allowed: bool | None = None
        self._clean = False
        self.carry: frozenset[str] = frozenset()

    @property
    def _on(self) -> bool:
        return self._place.mode == "native" and self._place.node_gate

    async def _may(self, shape: ClusterShape) -> bool:
        """Whether this Slurm has extra_constraints; asked once."""
        if self._allowed is None:
            conf = await self._slurm.config()
            words = conf.get("SchedulerParameters", "").split(",")
            self._allowed = shape.release >= FIRST_RELEASE and PARAMETER in words
            if not self._allowed:
                log.warning("place", result="no gate by node", reason=f"no {PARAMETER}")
        return self._allowed

    async def round(self) -> None:
        """Write what has changed; without the gate, open what was shut once: a key that went would
        shut a node to the jobs that ask for it. Raises SlurmError."""
        shape = self._shape()
        if shape is None or (not self._on and self._clean):
            return
        on = self._on and await self._may(shape)
        carry = set()
        gate_pct = round(100 * self._place.smact_gate)
        shared = {node.name: node for node in shape.nodes if node.shards}
        for use in await self._slurm.usage():
            node = shared.get(use.name)
            if node is None:
                continue
            has = present(use.extra)
            if has is None and not on:
                continue
            pct = self._level(node) if on else 0
            changed = due(has, pct, gate_pct) if on else has != 0
            text = written(use.extra, pct) if changed else None
            if text is not None:
                await self._slurm.set_node_extra(use.name, text)
                has = pct
                log.info("place", node=use.name, smact_pct=pct)
            if on and has is not None:
                carry.add(use.name)
        self.carry = frozenset(carry)
        self._clean = not on

    def _level(self, node: NodeShape) -> int:
        told = self._live.of(node.name)
        if told is None or time.time() - told[0] > self._place.stale_s:
            return 0  # not known: open, as without the gate
        closed = self._closed()  # as if they were busy without a break
        return level(1.0 if gpu.uuid in closed else gpu.smact for gpu in told[1][: node.gpus])

    async def close(self) -> None:
        """colocd ends: nobody keeps the figures fresh, so the nodes are opened."""
        for name in self.carry if self._on else ():
            try:
                extra = next(use.extra for use in await self._slurm.usage() if use.name == name)
                if text := written(extra, 0):
                    await self._slurm.set_node_extra(name, text)
            except (SlurmError, StopIteration) as err:
                log.warning("place", node=name, error=str(err))

    def at_submit(self, nodes: Collection[str], change: Rewrite) -> Rewrite:
        """The change of a share's request with the gate, where every node that it may get has the
        key."""
        if not self._on or not nodes or not set(nodes) <= self.carry:
            return change
        gate_pct = round(100 * self._place.smact_gate)
        return replace(change, fields={**change.fields, "extra": f"{KEY}<{gate_pct}"})
