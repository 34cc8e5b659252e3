# SPDX-License-Identifier: Apache-2.0
"""Answers `coloc jobs`, `gpus`, `history`, `report`, `explain`.

Root and SlurmUser see all (``seen_as`` None), other users their own jobs and what squeue shows.
"""

from typing import Any

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.peer import Peer
from slurm_coloc.errors import UsageFault
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.nodes.agents import Nodes
from slurm_coloc.flow.queries import answers, report
from slurm_coloc.flow.queries.explain import explain
from slurm_coloc.flow.queries.slurmdbd import Accounted
from slurm_coloc.flow.watch.watch import Watcher

Answer = dict[str, Any]


class Queries:
    """Answers from the history, from the nodes' messages, and from Slurm."""

    def __init__(self, context: Context, nodes: Nodes, watcher: Watcher) -> None:
        self._context, self._store = context, context.store
        self._nodes = nodes
        self._watcher = watcher
        self._accounted = Accounted(context.slurm)

    async def answer(
        self, op: object, peer: Peer, seen_as: int | None, message: Answer
    ) -> Answer | None:
        """The answer to ``op``; None for any other op. Raises ColocError."""
        match op:
            case "jobs":
                await self._watcher.freshen(peer.uid)
                found = answers.jobs(self._store, seen_as, message, self._private)
                return self._nodes.live.mark(found)
            case "gpus":
                return self._nodes.gpus(seen_as)
            case "history":
                return answers.history(self._store, seen_as, message)
            case "usage":
                if message.get("job_id") is None:
                    return report.summary(self._store, seen_as, message)
                return report.report(self._store, seen_as, message, self._private)
            case "explain":
                if isinstance(job_id := message.get("job_id"), int):
                    await self._watcher.poll(job_id, peer.uid, trusted=seen_as is None)
                return await self._explain(peer, seen_as, message)
        return None

    @property
    def _private(self) -> bool:
        return answers.is_private(self._context.shape())

    async def _explain(self, peer: Peer, seen_as: int | None, message: Answer) -> Answer:
        try:
            return await explain(self._context, seen_as, message)
        except UsageFault as err:
            job_id = message.get("job_id")
            if err.code != "unknown-job" or not isinstance(job_id, int):
                raise
            found = await self._accounted.explain(job_id, peer.uid, trusted=seen_as is None)
            if found is None:
                raise unknown_job(self._store, peer.uid, job_id, err) from err
            return found


def unknown_job(store: Store, uid: int, job_id: int, fault: UsageFault) -> UsageFault:
    """The answer for a job that is not known: another one where this user has a submission whose
    job colocd has not seen yet."""
    if not store.decisions.unbound(uid):
        return fault
    text = (
        f"job {job_id}: not seen yet. A submission of yours was not seen in Slurm so far, for"
        " slurmctld is busy or refused it: ask again in some seconds"
    )
    return UsageFault(text, fault.code)
