# SPDX-License-Identifier: Apache-2.0
"""What the hook sent, checked and parsed once, for all stages of a submission; and what it gets for
its user: lines that sbatch prints, of which each fits 80 columns. `coloc explain` has the rest.

The message comes from slurmctld, but every value in it was chosen by a user.
"""

from dataclasses import MISSING, dataclass, fields, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from slurm_coloc.core.decide.decision import (
    BY_SITE,
    BY_USER,
    HISTORY,
    Action,
    Decision,
    Estimate,
    Reason,
)
from slurm_coloc.core.decide.optimizers import Optimizer
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.cluster import ClusterShape, shared_gpus, wanted_partitions
from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.packed import MAX_PACKED
from slurm_coloc.estimate.request import SHAPE, TRAINING_FORM

MAX_SCRIPT = 65536  # characters of a batch script; the hook sends no longer one
NO_SHAPE = ClusterShape("", ())

# A gres string is bounded by Slurm itself (1024 characters in 24.11); node lists may be longer.
Text = Annotated[str, Field(max_length=16384)]
Count = Annotated[int, Field(ge=0, le=2**63)]
Small = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ColocOptions(BaseModel):
    """The user's --coloc options as the SPANK plugin forwarded them."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    summary: Annotated[str, Field(max_length=MAX_PACKED)] | None = None
    ticket: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    text_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    batch_size: Small | None = None
    seq_len: Small | None = None
    input: Annotated[str, Field(pattern=SHAPE)] | None = None
    training: Annotated[str, Field(pattern=TRAINING_FORM)] | None = None
    optimizer: Optimizer | None = None
    precision: Literal["fp32", "amp", "bf16"] | None = None
    alloc_conf: Annotated[str, Field(max_length=512)] | None = None  # PYTORCH_CUDA_ALLOC_CONF
    auto: bool = False  # --coloc=auto: the job is known by its script
    script: Annotated[str, Field(max_length=MAX_SCRIPT)] | None = None
    arguments: tuple[Annotated[str, Field(max_length=MAX_SCRIPT)], ...] = Field((), max_length=4096)
    policy: Annotated[str, Field(max_length=32)] = "collocate"
    memory_mib: Annotated[int, Field(ge=1, le=2**24)] | None = None  # --coloc-memory
    kind: Literal["batch", "salloc", "srun"] = "batch"
    slot: Annotated[int, Field(ge=0, le=366 * 86400)] | None = None  # seconds; 0: none wanted
    max_slowdown: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False)] | None = None

    @property
    def given(self) -> list[str]:
        """Training options that the user named; the others are assumed."""
        names = ("batch_size", "seq_len", "input", "optimizer", "precision", "training")
        return [name for name in names if getattr(self, name) is not None]


#: what a field of the request may hold, by its name, else by its type in JobRequest
_BY_NAME: dict[str, Any] = {
    "uid": Annotated[int, Field(ge=0, le=2**32 - 2)],
    "requeue": Literal[0, 1] | None,
    "name": Annotated[str, Field(max_length=1024)] | None,
    "env": Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(max_length=64)],
}
_BY_TYPE: dict[Any, Any] = {str | None: Text | None, int | None: Count | None, bool: bool}

_FIELDS: dict[str, Any] = {
    one.name: (
        _BY_NAME.get(one.name) or _BY_TYPE[one.type],
        ... if one.default is MISSING else one.default,
    )
    for one in fields(JobRequest)
    if one.name != "kind"
}
# When slurmctld loaded the hook, monotonic milliseconds; the user's --coloc options.
_FIELDS |= {"loaded_monotonic_ms": (Count | None, None), "coloc": (ColocOptions, ColocOptions())}

#: The request of op ``submit``: job_desc's fields under slurm.h's names, and ours.
SubmitMessage = create_model("SubmitMessage", __config__=ConfigDict(extra="ignore"), **_FIELDS)


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


def read_message(message: dict[str, Any]) -> tuple[ColocOptions, JobRequest]:
    """Check a submit request; raises UsageFault that names the wrong field."""
    try:
        values = dict(SubmitMessage.model_validate(message))
    except ValidationError as err:
        first = err.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UsageFault(f"submit request: {where}: {first['msg']}", "bad-request") from err
    coloc = values.pop("coloc")
    del values["loaded_monotonic_ms"]
    for name in ("account", "default_account", "qos"):  # Slurm takes them in any case
        values[name] = values[name] and values[name].lower()
    return coloc, JobRequest(**values, kind=coloc.kind)


def submission(
    message: dict[str, Any],
    shape: ClusterShape | None,
    pool: tuple[str, ...],
    *,
    stale: bool = False,
) -> Submission:
    """A submission from the hook's message; raises UsageFault. ``pool``: partitions whose GPUs may
    be shared, () for all. ``stale``: slurmctld has read slurm.conf since it showed ``shape``."""
    coloc, request = read_message(message)
    known = shape is not None and not stale
    shape = shape or NO_SHAPE
    if stale:
        # Not even a whole GPU may be asked for by its shards (22.05): they may be gone.
        nodes = tuple(replace(node, shards=0) for node in shape.nodes)
        shape = replace(shape, select_params=frozenset(), nodes=nodes)
    demand = request.demand
    gpus = shared_gpus(request, demand.type, shape, pool, demand.on_a_node, demand.nodes)
    types = tuple(kind.type for kind in gpus)
    partitions = wanted_partitions(request, shape)
    return Submission(coloc, request, shape, known, partitions, types)


COLUMNS = 80
BEFORE = "sbatch: coloc: "  # what stands in front of each line
ROOM = COLUMNS - len(BEFORE)
#: of reasons that are longer than what fits beside "whole GPU: "
BRIEF = {
    Reason.GPU_OPTIONS: "options per GPU (--gpu-freq, ...) need a whole one",
    Reason.MULTI_GPU: "several GPUs share only with one for each task",
    Reason.MULTI_GPU_SITE: "several GPUs need MULTIPLE_SHARING_GRES_PJ here",
    Reason.SPLIT_SHARE: "this Slurm may split a share over GPUs",
    Reason.SUSPENDS: "its partition suspends jobs, with their GPU memory",
    Reason.NO_SCRIPT: "--coloc=auto: no script, or one over 64 KiB",
    Reason.BAD_SUMMARY: "bad summary",
    Reason.NO_ESTIMATE: "no estimate",
    Reason.FILLS_GPU: "it needs more than a share",
    Reason.FIRST_RUN: "no earlier run of this script was measured yet",
    Reason.USER_BUSY: "other summaries of yours were being estimated",
    Reason.NOT_PREPARED: "not estimated yet; submitted again it may share",
    Reason.HISTORY_OOM: "this model ran out of GPU memory in such a share",
    Reason.HELD_MORE: "a job of this model held more than its share",
    Reason.SHARING_WITH: "nothing here keeps it off other users' GPUs",
}


def fitted(text: str) -> str:
    """``text``, cut where it does not fit."""
    return text if len(text) <= ROOM else f"{text[: ROOM - 3].rstrip()}..."


def line_of(decision: Decision, estimate: Estimate | None, shard_mib: int, *, learned: bool) -> str:
    """The decision in one line. ``learned``: earlier runs have changed the estimate."""
    if decision.action is Action.ASIS:
        return fitted(f"unchanged: {_why(decision)}")
    if decision.action is Action.EXCLUSIVE:
        return fitted(f"whole GPU: {_why(decision)}")
    assert estimate is not None  # a job is collocated only with an estimate
    most = f"at most {_gib(estimate.upper_mib)}"
    by = "earlier runs:" if learned else "estimate"
    figures = f"{by} {_gib(estimate.memory_mib)}, {most}"
    if estimate.name == BY_USER:
        figures = most = "as --coloc-memory says"
    elif estimate.name == BY_SITE:
        figures = most = "no estimate: the site's share"
    elif estimate.name == HISTORY:
        figures = f"earlier runs: {most}"
    if decision.slice_mib:
        size = f"gets a MIG device {decision.gpu_type}, {_gib(decision.slice_mib)} GiB"
    else:
        several = decision.gpus > 1
        what, each = (f"{decision.gpus} GPUs", " each") if several else ("a GPU", "")
        mine, all_of = (_gib(n * shard_mib) for n in (decision.shards, decision.shards_per_gpu))
        size = f"shares {what}: {mine} of {all_of} GiB{each}"
    whole = f"{size} ({figures})"
    return whole if len(whole) <= ROOM else fitted(f"{size} ({most})")


def _why(decision: Decision) -> str:
    if decision.reason is Reason.MULTI_GPU and decision.detail:
        return decision.detail  # there is no room for both
    text = BRIEF.get(decision.reason, decision.reason.text)
    return f"{text}: {decision.detail}" if decision.detail else text


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}"
