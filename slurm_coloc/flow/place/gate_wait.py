# SPDX-License-Identifier: Apache-2.0
"""Stage place: keeps jobs that wait at the gate from starting, and releases them
(core/place/gate_wait).

The wait is a constraint in the job's Extra, or a start time. A start time is renewed and expires by
itself, so the job is free if colocd dies; with a constraint the nodes' agents free the job then
(flow/measure/gate_watchdog).
"""

import time
from collections.abc import Sequence

import structlog

from slurm_coloc.core.place.gate_wait import Way, way_of
from slurm_coloc.core.place.node_gate import OPENED, SHUT_PCT, joined, limit_pct, own_part
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.place.steering import Waiting, Why
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.job import decision_in
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.place.memory import Memory, key
from slurm_coloc.flow.place.node_gate import NodeGate
from slurm_coloc.flow.place.requests import shards_of

log = structlog.get_logger()

# Slurm's reasons: the job waits for a constraint; Slurm takes it for impossible.
WAITS, IMPOSSIBLE = "Constraints", "BadConstraints"
WITHOUT_END = float("inf")
RENEWED = 2 / 3  # a start time is renewed when it is nearer than this part of it
# Jobs wait for these also where a start time costs them their age (docs/adr/0021).
ALL_THE_SAME = (Why.BOUND, Why.WHOLE)
Fields = dict[str, str | int]


class GateWait:
    """Makes the fields of ``scontrol update`` that keep a job waiting or release it."""

    def __init__(self, context: Context, memory: Memory, gate: NodeGate) -> None:
        self._slurm, self._memory, self._gate = context.slurm, memory, gate

    def at_submit(self, shape: ClusterShape, job: Waiting) -> Fields:
        """Fields of job_desc that make a submission wait; {} where it cannot."""
        if way_of(shape) is Way.EXTRA:
            text = self._constraint(job)
            return {"extra": text} if text else {}
        return self._later()

    def until_a_round(self, shape: ClusterShape) -> Fields:
        """Fields of job_desc that make a submission wait for a round that looks at it; {} where
        Slurm has no way that ends by itself."""
        return {} if way_of(shape) is Way.EXTRA else self._later()

    def _later(self) -> Fields:
        return {"begin_time": int(time.time() + self._memory.ahead_s) + 1}

    async def wait(self, shape: ClusterShape, job: Queued, waiting: Waiting, why: Why) -> Fields:
        """Keep a job waiting; {} where that would cost its age (docs/adr/0021). Raises
        SlurmError."""
        now, until_s = time.time(), self._memory.waits_until.get(key(job))
        if way_of(shape) is Way.EXTRA:
            text = self._constraint(waiting) if until_s != WITHOUT_END else None
            if text is None:
                return {}
            extra = await self._slurm.extra(job.handle)
            self._memory.waits_until[key(job)] = WITHOUT_END
            self._memory.free.discard(key(job))
            wanted = joined(extra, text)
            return {} if extra == wanted else {"Extra": wanted}
        if until_s is None and way_of(shape) is Way.NONE and why not in ALL_THE_SAME:
            return {}  # one that has waited so since its submission has no age to lose
        if until_s is not None and until_s - now >= RENEWED * self._memory.ahead_s:
            return {}
        self._memory.waits_until[key(job)] = now + self._memory.ahead_s
        return {"StartTime": f"now+{int(self._memory.ahead_s) + 1}"}

    async def go(self, job: Queued) -> Fields:
        """Release a job that waited. Raises SlurmError."""
        until_s = self._memory.waits_until.get(key(job))
        if until_s == WITHOUT_END or job.reason == WAITS or self._began_so(job):
            self._memory.waits_until.pop(key(job), None)
            return await self._freed(job, SHUT_PCT)
        if until_s is None or (job.reason != "BeginTime" and until_s > time.time()):
            return {}
        self._memory.waits_until.pop(key(job))
        return {"StartTime": "now"} if job.reason == "BeginTime" else {}

    def _began_so(self, job: Queued) -> bool:
        """Whether the job was submitted with a constraint that Slurm does not show yet."""
        sent = decision_in(job.admin_comment) in self._memory.begun and not job.restarts
        return bool(self._gate.carry) and sent

    async def _freed(self, job: Queued, most_pct: int = 100) -> Fields:
        """The change of Extra that removes our constraint, if its limit is ``most_pct`` or less.
        Each job's Extra is read once."""
        if key(job) in self._memory.free:
            return {}
        extra = await self._slurm.extra(job.handle)
        self._memory.free.add(key(job))
        pct = limit_pct(extra)
        return {} if pct is None or pct > most_pct else {"Extra": own_part(extra) or OPENED}

    def _constraint(self, job: Waiting) -> str | None:
        return self._gate.constraint(job.nodes, SHUT_PCT, job.shards, job.cpus, job.memory_mib)

    async def mend(self, queue: Sequence[Queued]) -> None:
        """Remove our constraint from jobs that it blocks. Raises SlurmError without slurmctld."""
        self._memory.forget(queue)
        for job in queue:
            try:
                if fields := await self._hindered(job):
                    await self._slurm.update(job.handle, **fields)
                    log.info("place", jobid=job.job_id, act="free", reason=job.reason)
            except SlurmError as err:
                self.failed(job)
                if err.away:
                    raise
                log.info("place", jobid=job.job_id, error=err.message)

    async def _hindered(self, job: Queued) -> Fields:
        """The change for a job that Slurm takes for impossible, or that asks for whole GPUs now."""
        if not job.waits or decision_in(job.admin_comment) is None:
            return {}
        if job.reason != IMPOSSIBLE and (not job.restarts or shards_of(job)):
            return {}
        fields = await self._freed(job)
        if fields:
            self._memory.given_up.add(key(job))  # the same constraint would fail again
        return fields

    def failed(self, job: Queued) -> None:
        """Forget the wait of a job whose update failed."""
        self._memory.waits_until.pop(key(job), None)
        self._memory.free.discard(key(job))
