# SPDX-License-Identifier: Apache-2.0
"""Stage launch, in colocd: whether a job begins on a GPU of a user that it may not share with.

Placement keeps users apart beforehand. They can meet all the same: sharing.with or a partition's
ExclusiveUser was changed while the job waited, a share was asked for without --coloc, or two jobs
crossed on their way. What Slurm shows decides; our own records and the node's processes only say
which jobs to ask about.
"""

from collections.abc import Sequence

import structlog

from slurm_coloc.core.recover.fitness import GpuNow
from slurm_coloc.core.slurm.job import TERMINAL, JobView
from slurm_coloc.flow.cluster.context import Context

log = structlog.get_logger()

# How the reason ends; a put-back is recognised by it.
_RULE = '(sharing.with = "{}")'
_MET = _RULE.partition("{")[0]


def met(why: str) -> bool:
    """Whether a put-back was for another user's job."""
    return _MET in why


class OtherUsers:
    """Finds the jobs of others on the GPUs of a job that begins."""

    def __init__(self, context: Context) -> None:
        self._store, self._slurm = context.store, context.slurm
        self._share_with = context.config.sharing.with_

    async def on(self, view: JobView, gpus: Sequence[GpuNow]) -> str:
        """Why the job may not begin there, "" where it may. Raises SlurmError.

        Its last look at our records is not followed by a wait: of two jobs that begin at the same
        time the second one sees the first.
        """
        gone: set[int] = set()
        while left := self._candidates(view, gpus) - gone:
            job_id = min(left)
            other = await self._slurm.job(job_id)
            if other is None or _left(other) or self._may_share(view, other):
                gone.add(job_id)
                continue
            log.info("other user", jobid=view.job_id, beside=job_id, uid=other.uid)
            whom = "account" if self._share_with == "account" else "user"
            return f"a job of another {whom} runs there {_RULE.format(self._share_with)}"
        return ""

    def _candidates(self, view: JobView, gpus: Sequence[GpuNow]) -> set[int]:
        """Jobs of other users that may be on these GPUs."""
        if self._share_with == "anyone":
            return set()
        uuids = {gpu.uuid for gpu in gpus}
        runs = self._store.runs.launched_on(uuids)
        found = {run.job_id for run in runs if run.uid != view.uid}
        found |= {
            one.job_id
            for gpu in gpus
            for one in gpu.holders
            if one.job_id is not None and one.uid not in (0, view.uid)
        }
        return found - {view.job_id}

    def _may_share(self, view: JobView, other: JobView) -> bool:
        if self._share_with == "account" and view.account:
            return view.account == other.account
        return view.uid == other.uid


def _left(other: JobView) -> bool:
    """Whether it no longer has its GPU, or not yet."""
    return other.state in TERMINAL or other.completing or other.state == "PENDING"
