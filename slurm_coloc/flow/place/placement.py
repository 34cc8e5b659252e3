# SPDX-License-Identifier: Apache-2.0
"""Stage place: both ways of placing, as colocd runs them."""

from dataclasses import replace

from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.flow.cluster.context import Context, ShareRequest
from slurm_coloc.flow.place.job_facts import Activities
from slurm_coloc.flow.place.node_gate import NodeGate
from slurm_coloc.flow.place.pins import Placer
from slurm_coloc.flow.place.requests import nodes_for_submission
from slurm_coloc.flow.place.snapshot import Closed


class Placement:
    """Steered: colocd pins jobs to GPUs. Native: Slurm's gate by node, where the site wants it."""

    def __init__(
        self,
        context: Context,
        closed: Closed = lambda: (),
        activities: Activities = dict,
    ) -> None:
        """``closed``: UUIDs of closed GPUs; ``activities``: of runs beside others. Raises
        ConfigError for an unknown policy."""
        self._shape, self._slurm = context.shape, context.slurm
        self._gate = NodeGate(context, closed)
        self._placer = Placer(context, self._gate, closed, activities)
        self._steers = context.config.placement.mode == "steered"
        self._free = False  # no job may have a constraint of ours

    @property
    def interval_s(self) -> float:
        """Seconds from one round to the next: placement.interval_s, more where rounds are long."""
        return self._placer.interval_s

    async def round(self) -> None:
        """One round over the queue and the nodes. Raises SlurmError."""
        uses, queue = await self._placer.round() or (None, None)
        await self._gate.round(uses)
        if not self._gate.carry and self._free:
            return
        # Also once without the gate: an earlier constraint may still hold a job.
        await self._placer.gate_wait.mend(await self._slurm.queue() if queue is None else queue)
        self._free = not self._gate.carry

    def forget_shares(self) -> None:
        self._placer.forget_shares()

    async def close(self) -> None:
        await self._gate.close()

    def at_submit(self, job: ShareRequest) -> Rewrite:
        """The change of a share's request, with the pin or wait that placing adds."""
        shape = self._shape()
        if self._steers:
            job = replace(job, change=self._placer.submitting.change(job))
        if shape is None or not self._gate.carry:
            return job.change
        return self._gate.at_submit(job, nodes_for_submission(job.request, shape))
