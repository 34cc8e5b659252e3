# SPDX-License-Identifier: Apache-2.0
"""Stage place: both ways of placing, as colocd runs them."""

from slurm_coloc.core.decision import Decision
from slurm_coloc.core.request import JobRequest
from slurm_coloc.core.rewrite import Rewrite
from slurm_coloc.flow.around import Around
from slurm_coloc.flow.nodegate import NodeGate
from slurm_coloc.flow.place import Placer, nodes_for
from slurm_coloc.flow.scene import Closed


class Placement:
    """Steered: pins. Native: the gate by node, where the site wants it."""

    def __init__(self, around: Around, closed: Closed = lambda: ()) -> None:
        """``closed``: UUIDs of GPUs that take no further job. Raises ConfigError for a policy that
        there is not."""
        self._shape = around.shape
        self._placer = Placer(around, closed)
        self._gate = NodeGate(around.config, around.slurm, around.live, around.shape, closed)
        self.interval_s = around.config.placement.interval_s

    async def round(self) -> None:
        """One look, and what follows from it. Raises SlurmError."""
        await self._placer.round()
        await self._gate.round()

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
        return self._gate.at_submit(nodes_for(request, shape) if shape else (), change)
