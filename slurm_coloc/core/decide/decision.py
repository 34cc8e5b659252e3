# SPDX-License-Identifier: Apache-2.0
"""The input of a decision (question and rules), and the decision with its reason."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from slurm_coloc.core.codes import Code
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.place.placing import ShareWith

Method = Literal["auto", "mps", "streams", "mig"]


#: name of an estimate that the user made (--coloc-memory)
BY_USER = "user"
BY_SITE = "site"  #: of what has none (estimate.unknown_share_mib)
HISTORY = "history"  #: that earlier runs alone made


class Action(StrEnum):
    """What happens to the request."""

    COLLOCATE = "collocate"  # shards of one GPU, or of one for each task; or one MIG device
    EXCLUSIVE = "exclusive"  # a whole GPU
    ASIS = "asis"  # as submitted


class Reason(Code):
    """The reason of a decision, shown in AdminComment, the history and `coloc explain`."""

    FITS = "fits", "the estimate fits beside other jobs"
    FITS_SLICE = "fits-slice", "the estimate fits a MIG device"
    SRUN_STEP = "srun-step", "srun asks for the GPU again for its own step"
    GPU_OPTIONS = "gpu-options", "options per GPU (--gpu-freq, --ntasks-per-gpu) need a whole one"
    MANY_TASKS = "many-tasks", "its tasks may need several nodes"
    NAMED_NODES = "named-nodes", "it may get nodes whose GPUs are not shared"
    OBSERVE = "observe", "observe mode: nothing is changed"
    OFF = "off", "slurm-coloc is off for this job"
    NO_GPU_ASKED = "no-gpu-asked", "the job asks for no GPU"
    USER_EXCLUSIVE = "user-exclusive", "--coloc-policy=exclusive"
    MULTI_GPU = (
        "multi-gpu",
        "several GPUs are shared only with one for each task, on one node (-n N --gpus-per-task=1)",
    )
    MULTI_GPU_SITE = (
        "multi-gpu-site",
        "sharing several GPUs needs Slurm 24.11 or later and "
        "SelectTypeParameters=MULTIPLE_SHARING_GRES_PJ",
    )
    SPLIT_SHARE = (
        "split-share",
        "this Slurm may split a share over GPUs, except that of one task "
        "(MULTIPLE_SHARING_GRES_PJ)",
    )
    HET_JOB = "het-job", "heterogeneous jobs are not shared"
    WHOLE_NODE = "whole-node", "--exclusive takes the whole node"
    SUSPENDS = "suspends", "its partition suspends jobs, and a suspended job keeps its GPU memory"
    NO_SUMMARY = "no-summary", "no model summary was given"
    NO_SCRIPT = (
        "no-script",
        "--coloc=auto knows a job by its batch script; it has none, or one over 64 KiB in all",
    )
    FIRST_RUN = (
        "first-run",
        "no earlier run of this script was measured yet; this one is, so that later ones can share",
    )
    BAD_SUMMARY = "bad-summary", "the model summary cannot be used"
    NO_ESTIMATE = "no-estimate", "no estimate could be made"
    SLOW_ESTIMATE = "slow-estimate", "the estimate took too long"
    USER_BUSY = "user-busy", "other summaries of the same user were still being estimated"
    NOT_PREPARED = (
        "not-prepared",
        "its model text was not estimated before the submission; submitted again it may share",
    )
    NO_SHARED_GPU = "no-shared-gpu", "no GPU that this job may get is shared"
    FILLS_GPU = "fills-gpu", "the job needs a whole GPU"
    HISTORY_OOM = "history-oom", "the same model ran out of GPU memory before in such a share"
    HELD_MORE = "held-more", "a job of this model held more than its share and ended a neighbour"
    NO_SHAPE = "no-shape", "colocd does not know the cluster yet"
    SHARING_WITH = (
        "sharing-with",
        "nothing here keeps a share off other users' GPUs (sharing.with)",
    )
    LIMIT = "limit", "as a share it could never start under a limit"
    MAX_SLOWDOWN = "max-slowdown", "no share can keep its --coloc-max-slowdown"


TEXTS = {reason: reason.text for reason in Reason}

#: what slurmctld's hook writes in place of a reason where it has no answer of colocd's
WITHOUT_ANSWER = {
    "colocd_down": "colocd was not running",
    "colocd_slow": "colocd did not answer in time",
    "breaker": "colocd had not answered shortly before, and was not asked",
    "bad_answer": "colocd's answer was not understood",
    "too_large": "the request was too large to be sent to colocd",
    "not_applied": "slurmctld's hook could not rewrite the request",
    "plugin_version": "the SPANK plugin is of another version than slurmctld's hook",
    "no_lua_posix": "slurmctld's Lua has no luaposix",
    "no_socket": "slurmctld could open no socket",
    "lua_error": "slurmctld's hook failed",
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """GPU memory (MiB) of the fullest GPU, its upper bound, and SM activity (0 to 1), if known."""

    name: str
    memory_mib: int
    upper_mib: int
    smact: float | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one job. ``shards``: of each of ``gpus`` GPUs, 0 unless ``action`` is
    COLLOCATE. ``slice_mib``: memory of the MIG device of type ``gpu_type`` that it gets instead of
    shards (0: none); the device is one share of that size. ``max_slowdown``: its slowdown limit,
    time beside others over time alone (None: none)."""

    action: Action
    reason: Reason
    shards: int = 0
    gpu_type: str | None = None
    shards_per_gpu: int = 0
    detail: str = ""
    gpus: int = 1
    slice_mib: int = 0
    max_slowdown: float | None = None

    @property
    def why(self) -> str:
        """The reason as a sentence without a full stop."""
        return f"{self.reason.text}: {self.detail}" if self.detail else self.reason.text


@dataclass(frozen=True, slots=True)
class Question:
    """One submission: the request, and the estimate or why there is none. ``oom_mib``: the largest
    share in which the same model ran out of memory before; ``policy``: --coloc-policy;
    ``held_more``: why this model does not share for a while, "" where it may."""

    request: JobRequest
    estimate: Estimate | None = None
    no_estimate: Reason = Reason.NO_SUMMARY
    detail: str = ""
    oom_mib: int | None = None
    policy: str = "collocate"
    held_more: str = ""


@dataclass(frozen=True, slots=True)
class Sizing:
    """How a GPU is divided: MiB per shard, jobs per GPU, and the bound on the sum of solo SM
    activities (None: SM activity takes no shards)."""

    shard_mib: int = 1024
    max_jobs_per_gpu: int = 8
    compute_budget: float | None = 1.7


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of the configuration that decides. ``pool``: partitions whose GPUs may be shared, ()
    for all that have shards; ``method`` and ``share_with``: of [sharing]; ``steered``: the nodes on
    which colocd pins jobs to GPUs."""

    sizing: Sizing
    pool: tuple[str, ...] = ()
    method: Method = "auto"
    share_with: ShareWith = "anyone"
    steered: frozenset[str] = frozenset()
