# SPDX-License-Identifier: Apache-2.0
"""The GPUs: which are shared, how they are cut, fenced and checked before a job starts."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from slurm_coloc.config.base import Section
from slurm_coloc.core.gpu.sharing import GPU_NAME, NODE_NAMES
from slurm_coloc.core.place.placing import ShareWith


class PoolConfig(Section):
    """[pool] which GPUs are shared and how they are cut."""

    partitions: tuple[str, ...] = Field(
        (), description="Partitions whose GPUs may be shared; empty: every one that has shards."
    )
    shard_mib: int = Field(1024, ge=64, le=65536, description="MiB of GPU memory in one shard.")
    margin_mib: int = Field(
        512, ge=0, description="MiB of each GPU that are never handed out as shards."
    )
    max_jobs_per_gpu: int = Field(
        8,
        ge=1,
        le=48,
        description="The most collocated jobs on one GPU (MPS itself serves 48 clients).",
    )
    compute_budget: float = Field(
        1.7,
        gt=0,
        le=4.0,
        description="Bound on the sum of solo SM activities on one GPU (ratio); used with"
        " size_by_smact where an estimator predicts the SM activity.",
    )
    size_by_smact: bool = Field(
        False,
        description="Reserve at least the part of a GPU's shards that the predicted SM activity has"
        " in compute_budget, whatever the memory. Predictions were compared with an A100-40GB"
        " alone.",
    )


class SharingRule(Section):
    """[[sharing.rules]] the first rule whose fields all match a GPU decides how it is shared."""

    node: str | None = Field(
        None,
        pattern=f"^(?:{NODE_NAMES})$",
        description="Nodes as Slurm lists them: n1, gpu[01-08]. Left out: all.",
    )
    gpu: str | None = Field(
        None,
        pattern=f"^(?:{GPU_NAME})$",
        description="Minor number of its device file (/dev/nvidia0: 0), or the UUID of a GPU or MIG"
        " device. Left out: all.",
    )
    method: Literal["mps", "streams"] = Field(
        description="mps: MPS, where it can run; streams: no MPS there. gres.conf decides which"
        " GPUs are cut by MIG."
    )


class SharingConfig(Section):
    """[sharing] who shares a GPU with whom, how on the node, and what fences their memory."""

    with_: ShareWith = Field(
        "user",
        alias="with",
        description="Whose jobs may share a GPU. user: those of one user. account: those of one"
        " account. anyone: all. Steered placement keeps to it. Natively Slurm places shares and"
        " knows no users: there jobs share only in partitions with ExclusiveUser=YES (which is"
        " stricter than account), or with anyone; elsewhere they get whole GPUs.",
    )

    method: Literal["auto", "mps", "streams", "mig"] = Field(
        "auto",
        description="auto: MPS where it can run, else streams (jobs take turns); a MIG device for"
        " jobs that fit 1g or find no shards. mig: a MIG device for all jobs that fit one. mps,"
        " streams (no MPS at all): no MIG device.",
    )
    users: Literal["one", "all"] = Field(
        "one",
        description="Which users share MPS on a GPU, where `with` lets several meet there. one: the"
        " first user, as long as a job of theirs runs on it; jobs of others take turns with it, and"
        " MPS does not fence them. all: one server for all users (Volta and later), in which a"
        " fault of one client ends all of them.",
    )
    several_gpus: Literal["streams", "tasks"] = Field(
        "streams",
        description="Jobs with shares of several GPUs. streams: no MPS, since one MPS daemon"
        " serves one GPU. tasks: a task with one GPU is a client of that GPU's MPS and has its"
        " fence. NCCL between clients of two MPS servers was not tried.",
    )
    thread_percentage: int = Field(
        0,
        ge=0,
        le=100,
        description="Share of the SMs that one job may fill (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE);"
        " 0: no limit.",
    )
    cgroup: Literal["auto", "off"] = Field(
        "auto",
        description="auto: where the driver knows limits of cgroups (r615, CUDA 13.4; cgroup v2, no"
        " MIG), the kernel holds a job's memory, in addition to MPS.",
    )
    frameworks: Literal["known", "always", "off"] = Field(
        "known",
        description="PyTorch's and JAX's own limits where nothing stronger holds a job. known: in"
        " steps whose program is a Python with a PyTorch that takes one (2.10); always: in all"
        " tasks (no PyTorch before 2.10 is in use here); off: never.",
    )
    mps_control: Path = Field(
        Path("/usr/bin/nvidia-cuda-mps-control"), description="The MPS control program."
    )
    rules: tuple[SharingRule, ...] = Field(
        (), description="Exceptions for single nodes and GPUs: [[sharing.rules]]."
    )


class FenceConfig(Section):
    """[fence] what the agent does about a job that holds more memory than it was promised."""

    overrun: Literal["tell", "end"] = Field(
        "tell",
        description="A job whose own processes hold more of a GPU than its share and a CUDA context"
        " (estimate.context_mib) each, three samples in a row. tell: in the job's log, in explain,"
        " jobs and report, and in the agent's log. end: also end these processes; the job then"
        " comes back as after an out-of-memory of its own. Read when the agent starts.",
    )


class GateConfig(Section):
    """[gate] the check of the GPUs before a job starts on them."""

    enabled: bool = Field(
        True,
        description="Put a job back into the queue where its GPUs have less free memory than it"
        " reserved, or run a process of no job. The job has not begun, and no node is drained.",
    )
    require_fence: bool = Field(
        False,
        description="Also put a sharing job back where neither MPS nor the kernel would limit its"
        " memory: another user has MPS on the GPU, or the node has none. What a container hides"
        " from a task is not known before it starts; the job's output and record tell it.",
    )
    slack_mib: int = Field(
        512, ge=0, description="MiB by which free memory may be less than reserved."
    )
    wait_s: float = Field(
        60.0,
        ge=1,
        description="Seconds before a job that was put back is tried again; they double each time.",
    )
    longest_wait_s: float = Field(600.0, ge=1, description="The longest such wait.")
    exclude_s: float = Field(
        300.0,
        ge=0,
        description="Seconds for which such a job avoids the node, where another could take it.",
    )
    max_per_job: int = Field(
        20, ge=0, description="How often one job is put back; after that it starts in any case."
    )
