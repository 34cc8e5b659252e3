# SPDX-License-Identifier: Apache-2.0
"""Mends the jobs that depend on a job which had ended before its recovery began.

Usually a recovery begins while the job is COMPLETING: then its dependents have not seen it fail and
need nothing (core/recover/dependency). A cluster with kill_invalid_depend cancels dependents at
once; `coloc doctor` says so.
"""

import structlog

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.recover.dependency import names, renewed
from slurm_coloc.core.slurm.job import JobView, by_record
from slurm_coloc.errors import SlurmError

log = structlog.get_logger()


async def mend(store: Store, slurm: SlurmClient, work: Recovery, job: JobView) -> None:
    """Renew the dependency of every job that waits in vain for ``job``, which is in the queue
    again. A refusal (a term names a job that Slurm forgot) is noted and not tried again; raises
    SlurmError where slurmctld does not answer."""
    texts: dict[str, list[JobView]] = {}
    for view in await slurm.waiting_in_vain():
        if names(view.dependency, job):
            texts.setdefault(view.dependency, []).append(view)
    for text, views in texts.items():
        for target in by_record(views):
            note = f"dependency of job {target.handle} renewed: it waits for this job again"
            try:
                await slurm.update(target.handle, Dependency=renewed(text))
            except SlurmError as err:
                note = f"dependency of job {target.handle} could not be renewed: {err.message}"
            log.info("recover", jobid=job.job_id, dependent=target.handle, dependency=renewed(text))
            store.note(work.decision, work.job_id, "recover", note)
