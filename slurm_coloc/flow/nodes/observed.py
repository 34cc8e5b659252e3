# SPDX-License-Identifier: Apache-2.0
"""Jobs that colocd did not place, from the agents' heartbeats: recorded, and named by Slurm."""

from typing import Annotated

import structlog
from pydantic import Field, TypeAdapter, ValidationError

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.adapters.store.observed import NOT_KNOWN
from slurm_coloc.core.records.observed import ObservedJob
from slurm_coloc.flow.cluster.telemetry import JobId, Mib, Ratio, Text
from slurm_coloc.flow.nodes.epilog import Message

log = structlog.get_logger()

ASK_S = 20.0  # between two questions to Slurm, where there is a job that it was not asked of
Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


class _Gpu(Message):
    uuid: Annotated[str, Field(pattern=r"^[A-Za-z0-9/-]{1,96}$")]
    name: Text = ""
    total_mib: Mib
    peak_mib: Mib
    smact: Ratio = None


class _Job(Message):
    job_id: JobId
    since_s: Time
    until_s: Time
    samples: Annotated[int, Field(ge=1, le=2**31)]
    gpus: tuple[_Gpu, ...] = Field(min_length=1, max_length=64)


_ROWS = TypeAdapter(Annotated[tuple[_Job, ...], Field(max_length=64)])


def take(store: Store, node: str, rows: object) -> None:
    """Record what a heartbeat of ``node`` tells; what is malformed is left out, with a word."""
    if not rows:
        return
    try:
        found = _ROWS.validate_python(rows)
    except ValidationError as err:
        log.warning("observed", node=node, error=str(err.errors()[0]["msg"])[:120])
        return
    with store.transaction():
        for one in found:
            store.observed.see(_record(node, one))


def _record(node: str, job: _Job) -> ObservedJob:
    fullest = max(job.gpus, key=lambda gpu: gpu.peak_mib)
    known = [gpu.smact for gpu in job.gpus if gpu.smact is not None]
    return ObservedJob(
        job_id=job.job_id,
        node=node,
        since_s=job.since_s,
        until_s=max(job.since_s, job.until_s),
        samples=job.samples,
        gpus=len(job.gpus),
        kind=fullest.name,
        total_mib=fullest.total_mib,
        peak_mib=fullest.peak_mib,
        smact=sum(known) / len(known) if known else None,
    )


async def name_them(store: Store, slurm: SlurmClient) -> None:
    """Ask Slurm, in one question, whose the new ones are; raises SlurmError."""
    new = store.observed.unasked()
    if not new:
        return
    shown = {view.job_id: view for view in await slurm.all_jobs()}
    with store.transaction():
        for job_id in new:
            if store.runs.of_job(job_id):  # a sample after its Epilog
                store.observed.drop(job_id)
                continue
            if (view := shown.get(job_id)) is None:
                store.observed.name(job_id, NOT_KNOWN)
                continue
            account, partition = view.account or None, view.partition or None
            store.observed.name(
                job_id, view.uid, account, partition, view.submit_s, view.start_s
            )  # fmt: skip
