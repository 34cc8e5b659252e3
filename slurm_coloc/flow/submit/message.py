# SPDX-License-Identifier: Apache-2.0
"""What the hook sent, checked and parsed once, for all stages of a submission.

The message comes from slurmctld, but every value in it was chosen by a user.
"""

import base64
import binascii
import zlib
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurm_coloc.core.decide.optimizers import Optimizer
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.cluster import ClusterShape, shared_gpus, wanted_partitions
from slurm_coloc.errors import SummaryError, UsageFault

MAX_PACKED = 65536  # characters of base64; the SPANK plugin sends no more
MAX_SCRIPT = 65536  # characters of a batch script; the hook sends no longer one
MAX_TEXT = 4 * 1024 * 1024  # bytes of summary text
NO_SHAPE = ClusterShape("", ())

# A gres string is bounded by Slurm itself (1024 characters in 24.11); node lists may be longer.
Text = Annotated[str, Field(max_length=16384)]
Count = Annotated[int, Field(ge=0, le=2**63)]
Small = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ColocOptions(BaseModel):
    """The user's --coloc options as the SPANK plugin forwarded them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    summary: Annotated[str, Field(max_length=MAX_PACKED)] | None = None
    batch_size: Small | None = None
    seq_len: Small | None = None
    optimizer: Optimizer | None = None
    precision: Literal["fp32", "amp", "bf16"] | None = None
    alloc_conf: Annotated[str, Field(max_length=512)] | None = None  # PYTORCH_CUDA_ALLOC_CONF
    auto: bool = False  # --coloc=auto: the job is known by its script
    script: Annotated[str, Field(max_length=MAX_SCRIPT)] | None = None
    arguments: tuple[Annotated[str, Field(max_length=MAX_SCRIPT)], ...] = Field((), max_length=4096)
    policy: Annotated[str, Field(max_length=32)] = "collocate"
    kind: Literal["batch", "salloc", "srun"] = "batch"
    slot: Annotated[int, Field(ge=0, le=366 * 86400)] | None = None  # seconds; 0: none wanted
    max_slowdown: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] | None = None

    @property
    def given(self) -> list[str]:
        """Training options that the user named; the others are assumed."""
        names = ("batch_size", "seq_len", "optimizer", "precision")
        return [name for name in names if getattr(self, name) is not None]


class SubmitMessage(BaseModel):
    """The request of op ``submit``; job_desc's fields under slurm.h's names."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    uid: Annotated[int, Field(ge=0, le=2**32 - 2)]
    loaded_ms: Count | None = None  # when slurmctld loaded the hook, Unix milliseconds
    account: Text | None = None
    partition: Text | None = None
    qos: Text | None = None
    features: Text | None = None
    time_limit: Count | None = None
    num_tasks: Count | None = None
    ntasks_per_node: Count | None = None
    min_nodes: Count | None = None
    max_nodes: Count | None = None
    min_cpus: Count | None = None
    cpus_per_task: Count | None = None
    min_mem_per_node: Count | None = None
    min_mem_per_cpu: Count | None = None
    tres_per_node: Text | None = None
    tres_per_job: Text | None = None
    tres_per_task: Text | None = None
    tres_per_socket: Text | None = None
    cpus_per_tres: Text | None = None
    mem_per_tres: Text | None = None
    array: Text | None = None
    het: bool = False
    exclusive_node: bool = False
    requeue: Literal[0, 1] | None = None
    batch: bool = True
    admin_comment: Text | None = None
    default_account: Text | None = None
    req_nodes: Text | None = None
    exc_nodes: Text | None = None
    reservation: Text | None = None
    tres_freq: Text | None = None
    tres_bind: Text | None = None
    ntasks_per_tres: Count | None = None
    env: tuple[Annotated[str, Field(max_length=64)], ...] = Field((), max_length=64)
    coloc: ColocOptions = ColocOptions()

    def request(self) -> JobRequest:
        """The job's own part of the message."""
        own = {
            name: getattr(self, name) for name in JobRequest.__dataclass_fields__ if name != "kind"
        }
        return JobRequest(**own, kind=self.coloc.kind)


@dataclass(frozen=True, slots=True)
class Submission:
    """One submission as its stages take it. ``shape``: the cluster's; without nodes where it is not
    ``known``. ``partitions``: those that the job may run in; ``gpu_types``: types of shared GPUs
    that it may get (None: untyped)."""

    coloc: ColocOptions
    request: JobRequest
    shape: ClusterShape = NO_SHAPE
    known: bool = False
    partitions: tuple[str, ...] = ()
    gpu_types: tuple[str | None, ...] = ()


def read_message(message: dict[str, Any]) -> SubmitMessage:
    """Check a submit request; raises UsageFault that names the wrong field."""
    try:
        return SubmitMessage.model_validate(message)
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageFault(f"submit request: {where}: {first['msg']}", "bad-request") from err


def submission(
    message: dict[str, Any],
    shape: ClusterShape | None,
    pool: tuple[str, ...],
    *,
    stale: bool = False,
) -> Submission:
    """A submission from the hook's message; raises UsageFault. ``pool``: partitions whose GPUs may
    be shared, () for all. ``stale``: slurmctld has read slurm.conf since it showed ``shape``."""
    checked = read_message(message)
    request, known = checked.request(), shape is not None and not stale
    shape = shape or NO_SHAPE
    if stale:
        shape = replace(shape, select_params=frozenset())
    gpus = shared_gpus(request, request.demand.type, shape, pool, request.demand.gpus)
    types = tuple(kind.type for kind in gpus)
    partitions = wanted_partitions(request, shape)
    return Submission(checked.coloc, request, shape, known, partitions, types)


def unpack_summary(packed: str) -> str:
    """Text of a forwarded summary (base64 of zlib); raises SummaryError.

    Inflating stops at 4 MiB, so a bomb costs no more than an honest file of that size.
    """
    try:
        data = base64.b64decode(packed, validate=True)
        inflater = zlib.decompressobj()
        text = inflater.decompress(data, MAX_TEXT + 1)
    except (binascii.Error, ValueError, zlib.error) as err:
        raise SummaryError(f"the forwarded summary is damaged: {err}", "damaged") from err
    if len(text) > MAX_TEXT:
        raise SummaryError("the summary is larger than 4 MiB", "too-large")
    if not inflater.eof:
        raise SummaryError("the forwarded summary is cut short", "damaged")
    return text.decode("utf-8", errors="replace")
