# SPDX-License-Identifier: Apache-2.0
"""Answers `coloc jobs`, `gpus`, `history`, `report`, `explain` and `status`, in colocd's front.

Root and SlurmUser see all (``seen_as`` None), other users their own jobs and what squeue shows.
What is in the history is read here, in a thread; the main process is asked for what only it has.
"""

from typing import Any

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.peer import Peer
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.flow.queries import answers, report
from slurm_coloc.flow.queries.explain import explain
from slurm_coloc.flow.queries.site import Site
from slurm_coloc.flow.queries.slurmdbd import Accounted

log = structlog.get_logger()

Answer = dict[str, Any]

# Seconds that a user's question waits for the main process, where that may ask Slurm.
FRESH_S = 12.0
STATUS_S = 5.0


def _is_unbound(store: Store, uid: int) -> bool:
    return store.decisions.unbound(uid)


def _goes_on(store: Store, job_id: int) -> bool:
    return any(run.open for run in store.runs.of_job(job_id))


class Queries:
    """One method an op; each takes the peer and the message. Raises ColocError."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._accounted = Accounted(site.slurm)

    async def jobs(self, peer: Peer, message: Answer) -> Answer:
        """Runs that have not ended."""
        site = self._site
        if await site.read(_is_unbound, peer.uid):
            await self._freshen("freshen", uid=peer.uid)
        seen_as = site.limited_to(peer)
        found = await site.read(answers.jobs, seen_as, message, site.private)
        return site.figures.mark(found, seen_as)

    async def gpus(self, peer: Peer, message: Answer) -> Answer:
        """The GPUs now."""
        site = self._site
        if site.limited_to(peer) is not None and site.private:
            return site.figures.answer(None)
        return site.figures.answer(await site.read(answers.running_tasks))

    async def history(self, peer: Peer, message: Answer) -> Answer:
        """The newest runs, and what observe mode decided."""
        site = self._site
        found = await site.read(answers.history, site.limited_to(peer), message)
        site.figures.number(found["runs"])
        return found

    async def usage(self, peer: Peer, message: Answer) -> Answer:
        """What one run used, or a summary of many."""
        site = self._site
        seen_as = site.limited_to(peer)
        if message.get("job_id") is None:
            return await site.read(report.summary, seen_as, message)
        return await site.read(report.report, seen_as, message, site.private)

    async def past(self, peer: Peer, message: Answer) -> Answer:
        """The ended runs that a report of many is made of."""
        return await self._site.read(report.past, self._site.limited_to(peer), message)

    async def mine(self, peer: Peer, message: Answer) -> Answer:
        """The asker's own jobs without --coloc."""
        return await self._site.read(report.mine, peer.uid, message)

    async def explain(self, peer: Peer, message: Answer) -> Answer:
        """All of one job."""
        site, job_id = self._site, answers.job_id_in(message)
        trusted = peer.uid in site.trusted
        if not await site.read(_goes_on, job_id):
            await self._freshen("poll", job_id=job_id, uid=peer.uid, trusted=trusted)
        try:
            return await explain(site, peer, message)
        except UsageFault as err:
            if err.code != "unknown-job":
                raise
            if found := await site.read(answers.observed, site.limited_to(peer), job_id):
                return found
            found = await self._accounted.explain(job_id, peer.uid, trusted=trusted)
            if found is None:
                raise await self._site.read(unknown_job, peer.uid, job_id, err) from err
            return found

    async def observed(self, peer: Peer, message: Answer) -> Answer:
        """The jobs that colocd did not place, as agents measured them."""
        return await self._site.read(answers.measured, message)

    async def status(self, peer: Peer, message: Answer) -> Answer:
        """The cluster and the history in numbers."""
        trusted = peer.uid in self._site.trusted
        cluster = await self._site.main.call("status", STATUS_S, trusted=trusted)
        return cluster | await self._site.read(answers.counts, trusted)

    async def _freshen(self, op: str, **fields: Any) -> None:
        """Let the main process look at Slurm first; what is known is answered without it, too."""
        try:
            await self._site.main.call(op, FRESH_S, **fields)
        except ColocError as err:
            log.info("freshen", op=op, error=err.message)


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
