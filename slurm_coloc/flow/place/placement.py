# SPDX-License-Identifier: Apache-2.0
"""Stage place: both ways of placing, as colocd runs them."""

from slurm_coloc.core.decide.decision import Decision
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.place.node_gate import NodeGate
from slurm_coloc.flow.place.pins import Placer, nodes_for
from slurm_coloc.flow.place.snapshot import Closed


class Placement:
    """Steered: pins. Native: the gate by node, where the site wants it."""

    def __init__(self, around: Context, closed: Closed = lambda: ()) -> None:
        """``closed``: UUIDs of GPUs that take no further job. Raises ConfigError for a policy that
        there is not."""
        self._shape, self._slurm = around.shape, around.slurm
        self._gate = NodeGate(
            around.config, around.slurm, around.live, around.shape, closed, around.off
        )
        self._placer = Placer(around, self._gate, closed)
        self._free = False  # no job may have a constraint of ours
        self.interval_s = around.config.placement.interval_s

    async def round(self) -> None:
        """One look, and what follows from it. Raises SlurmError."""
        look = await self._placer.round()
        await self._gate.round(look.uses if look else None)
        if not self._gate.carry and self._free:
            return
        # Also once without the gate: a job may be held by a constraint of before.
        await self._placer.parking.mend(look.queue if look else await self._slurm.queue())
        self._free = not self._gate.carry

    async def close(self) -> None:
        """colocd ends."""
        await self._gate.close()

    def at_submit(
        self,
        decision_id: str,
        request: JobRequest,
        decision: Decision,
        smact: float | None,
        change: Rewrite,
    ) -> Rewrite:
        """What placing adds to the change of a share's request."""
        change = self._placer.at_submit(decision_id, request, decision, smact, change)
        shape = self._shape()
        nodes = nodes_for(request, shape) if shape else ()
        return self._gate.at_submit(nodes, request, decision, change)
