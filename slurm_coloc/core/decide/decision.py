# SPDX-License-Identifier: Apache-2.0
"""What was decided for a job, and why: one reason code a decision."""

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What happens to the request."""

    COLLOCATE = "collocate"  # shards of one GPU, or of one for each task; or one MIG device
    EXCLUSIVE = "exclusive"  # a whole GPU
    ASIS = "asis"  # as submitted


class Reason(StrEnum):
    """Why; stands in AdminComment, in the history and in `coloc explain`."""

    FITS = "fits"
    FITS_SLICE = "fits-slice"
    SRUN_STEP = "srun-step"
    GPU_OPTIONS = "gpu-options"
    MANY_TASKS = "many-tasks"
    NAMED_NODES = "named-nodes"
    OBSERVE = "observe"
    OFF = "off"
    NO_GPU_ASKED = "no-gpu-asked"
    USER_EXCLUSIVE = "user-exclusive"
    MULTI_GPU = "multi-gpu"
    MULTI_GPU_SITE = "multi-gpu-site"
    SPLIT_SHARE = "split-share"
    HET_JOB = "het-job"
    WHOLE_NODE = "whole-node"
    SUSPENDS = "suspends"
    NO_SUMMARY = "no-summary"
    NO_SCRIPT = "no-script"
    FIRST_RUN = "first-run"
    BAD_SUMMARY = "bad-summary"
    NO_ESTIMATE = "no-estimate"
    SLOW_ESTIMATE = "slow-estimate"
    NO_SHARED_GPU = "no-shared-gpu"
    FILLS_GPU = "fills-gpu"
    HISTORY_OOM = "history-oom"
    NO_SHAPE = "no-shape"
    LIMIT = "limit"
    MAX_SLOWDOWN = "max-slowdown"


# One line a reason, for people; {figures} are filled by explain_reason.
TEXTS: dict[Reason, str] = {
    Reason.FITS: "the estimate fits beside other jobs",
    Reason.FITS_SLICE: "the estimate fits a MIG device",
    Reason.SRUN_STEP: "srun asks for the GPU again for its own step",
    Reason.GPU_OPTIONS: "options per GPU (--gpu-freq, --ntasks-per-gpu) need a whole one",
    Reason.MANY_TASKS: "its tasks may need several nodes",
    Reason.NAMED_NODES: "it may get nodes whose GPUs are not shared",
    Reason.OBSERVE: "observe mode: nothing is changed",
    Reason.OFF: "slurm-coloc is off for this job",
    Reason.NO_GPU_ASKED: "the job asks for no GPU",
    Reason.USER_EXCLUSIVE: "--coloc-policy=exclusive",
    Reason.MULTI_GPU: "several GPUs are shared only with one for each task, on one node"
    " (-n N --gpus-per-task=1)",
    Reason.MULTI_GPU_SITE: "sharing several GPUs needs Slurm 24.11 or later and"
    " SelectTypeParameters=MULTIPLE_SHARING_GRES_PJ",
    Reason.SPLIT_SHARE: "this Slurm may split a share over GPUs, except that of one task"
    " (MULTIPLE_SHARING_GRES_PJ)",
    Reason.HET_JOB: "heterogeneous jobs are not shared",
    Reason.SUSPENDS: "its partition suspends jobs, and a suspended job keeps its GPU memory",
    Reason.WHOLE_NODE: "--exclusive takes the whole node",
    Reason.NO_SUMMARY: "no model summary was given",
    Reason.NO_SCRIPT: "--coloc=auto knows a job by its batch script, and this one has none",
    Reason.FIRST_RUN: "no earlier run of this script was measured yet; this one is, so that later"
    " ones can share",
    Reason.BAD_SUMMARY: "the model summary cannot be used",
    Reason.NO_ESTIMATE: "no estimate could be made",
    Reason.SLOW_ESTIMATE: "the estimate took too long",
    Reason.NO_SHARED_GPU: "no GPU that this job may get is shared",
    Reason.FILLS_GPU: "the job needs a whole GPU",
    Reason.HISTORY_OOM: "the same model ran out of GPU memory before in such a share",
    Reason.NO_SHAPE: "colocd does not know the cluster yet",
    Reason.LIMIT: "as a share it could never start under a limit",
    Reason.MAX_SLOWDOWN: "no share can keep its --coloc-max-slowdown",
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
    """The answer for one job. ``shards`` is 0 unless ``action`` is COLLOCATE; it is that of each
    of ``gpus`` GPUs. ``slice_mib``: memory of the MIG device of type ``gpu_type`` that it gets
    instead of shards (0: none); that is one share of its size. ``max_slowdown``: time beside others
    over time alone that it bears (None: any)."""

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
        text = TEXTS[self.reason]
        return f"{text}: {self.detail}" if self.detail else text
