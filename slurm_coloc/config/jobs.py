# SPDX-License-Identifier: Apache-2.0
"""The jobs: how their GPU memory is estimated, and what happens where the estimate was wrong."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from slurm_coloc.config.base import Section
from slurm_coloc.core.decide.optimizers import Optimizer


class EstimateConfig(Section):
    """[estimate] how the GPU memory of a job is estimated."""

    estimator: str = Field(
        "auto",
        description="Name of the estimator that decides. auto: what `coloc summarize` recorded,"
        " where the summary has it, else text.",
    )
    default_optimizer: Optimizer = Field("adam", description="Assumed where the user names none.")
    default_precision: Literal["fp32", "amp", "bf16"] = Field(
        "fp32",
        description="Assumed where the user names none. amp: autocast; bf16: the model itself.",
    )
    default_seq_len: int = Field(
        512, ge=1, description="Tokens assumed for a Transformer summary that shows no shapes."
    )
    context_mib: int = Field(
        1900,
        ge=0,
        description="MiB of the CUDA context and libraries of one process that the bound allows"
        " for, on GPU types that were not calibrated. 544 to 1900 were measured, depending on card"
        " and stack; the default is the safe end. The estimate itself has what is typical for the"
        " type (A100 1735, others 760), this at most. `coloc calibrate` measures a type.",
    )
    stacks_dir: Path = Field(
        Path("/etc/slurm-coloc/stacks"),
        description="Folder of the calibrations, TYPE.toml for each GPU type, read at colocd's"
        " start.",
    )
    level: float = Field(
        0.99,
        ge=0.5,
        le=0.999,
        description="Probability that a job stays below what is reserved for it, 0.5 to 0.999.",
    )
    time_limit_ms: int = Field(
        2000,
        ge=50,
        le=60_000,
        description="sbatch waits so long for the estimate of its summary; then the job gets a"
        " whole GPU, and sbatch says so. slurmctld waits for no estimate.",
    )
    cpu_limit_ms: int = Field(
        1000,
        ge=50,
        le=60_000,
        description="Processor time that one summary may take, or all summaries of an array. One"
        " that takes more is ended and not tried again for a day: its jobs get whole GPUs.",
    )
    memory_limit_mib: int = Field(
        96, ge=16, le=4096, description="Memory that reading and estimating one summary may take."
    )
    workers: int = Field(
        2, ge=2, le=16, description="Summaries that are estimated at a time; of one user one."
    )
    unknown_share_mib: int = Field(
        0,
        ge=0,
        le=2**24,
        description="MiB of the share that a job gets whose model or script has no estimate"
        " (no-estimate, bad-summary, slow-estimate, first-run). Where it needs more it runs out of"
        " GPU memory and comes back with more, then on a whole GPU. 0: a whole GPU at once. For"
        " sites whose shares are fenced: without a fence it may end its neighbours.",
    )
    history: bool = Field(
        True,
        description="Correct estimates by the measured peaks of the user's own earlier runs of the"
        " same model, or of the same script (--coloc=auto). Peaks are measured where the GPUs'"
        " accounting mode is on (nvidia-smi -am 1).",
    )
    history_min_run_s: float = Field(
        60.0,
        ge=0,
        description="Seconds that a run must last before its peak counts as all that it needs.",
    )


class RecoveryConfig(Section):
    """[recovery] what happens after a GPU out-of-memory."""

    enabled: bool = Field(True, description="Requeue a collocated job that ran out of GPU memory.")
    steps: int = Field(
        1,
        ge=0,
        le=10,
        description="How often a job that needed more than its share gets a larger one. After"
        " that, or where it is not known how much it needs, it gets a whole GPU.",
    )
    more_mib: int = Field(
        5120, ge=64, description="The least number of MiB by which a larger share is larger."
    )
    more_ratio: float = Field(
        1.25,
        ge=1.0,
        le=4.0,
        description="A larger share is at least this factor times what the job is known to need:"
        " its measured peak, or what it held and requested by its log.",
    )
    max_per_job: int = Field(
        2,
        ge=0,
        description="Recoveries of one job for its own need; the last is on a whole GPU.",
    )
    max_victim_requeues: int = Field(
        3,
        ge=0,
        description="How often a job comes back with the same request after others ended it, for"
        " each cause: a neighbour above its share, a process of no job, a fault of MPS or of the"
        " card. After that it comes back on a whole GPU. The other caps do not count these"
        " requeues.",
    )
    max_per_user_day: int = Field(50, ge=0, description="Recoveries of one user in 24 hours.")
    max_per_day: int = Field(500, ge=0, description="Recoveries of the whole cluster in 24 hours.")
    resize_siblings: bool = Field(
        True,
        description="After a task of an array ran out of GPU memory, the waiting tasks of the array"
        " request what its next try gets. No cap limits this, because it prevents failures.",
    )
    raise_by: Literal["priority", "nice", "qos", "none"] = Field(
        "priority", description="How the requeued job gets ahead of others."
    )
    priority: int = Field(
        100_000, ge=1, description="Priority set with raise_by = priority (Slurm's own scale)."
    )
    raise_for_s: float = Field(
        3600.0,
        ge=0,
        description="Seconds for which a recovered job is first in the queue. Then it has its own"
        " priority again, so that one that waits for a whole GPU does not delay all others.",
    )
    max_first_per_user_day: int = Field(
        5,
        ge=0,
        description="How many recovered jobs of one user are first in the queue in 24 hours;"
        " further ones keep the priority that they had.",
    )
    nice: int = Field(
        -10_000,
        le=0,
        description="Added to the job's own nice value with raise_by = nice; negative raises its"
        " priority.",
    )
    start_after_s: int = Field(
        5,
        ge=2,
        le=120,
        description="Seconds before a requeued job may start. A job that starts in the second of"
        " its last end fails by a revoked credential; allow for the clocks of the nodes.",
    )
    qos: str | None = Field(None, description="QOS set with raise_by = qos.")

    @model_validator(mode="after")
    def _qos_named(self) -> "RecoveryConfig":
        if self.raise_by == "qos" and not self.qos:
            raise ValueError('raise_by = "qos" needs a qos')
        return self


class BlameConfig(Section):
    """[blame] what follows for a job that ended a neighbour: it held more GPU memory than its share
    when the neighbour ran out."""

    culprit: Literal["tell", "exclusive"] = Field(
        "tell",
        description="tell: say so in `coloc explain`, `report`, `jobs` and the log. exclusive: also"
        " give its user's later jobs of the same model whole GPUs for exclusive_h.",
    )
    exclusive_h: float = Field(
        24.0,
        gt=0,
        le=8760,
        description="Hours, after the last time that it ended a neighbour, in which a model does"
        " not share with culprit = exclusive. Its jobs that wait or run are not changed.",
    )


class SlotRule(Section):
    """[[slots.partitions]] another default for one partition."""

    partition: str = Field(description="Partition name.")
    default_s: int = Field(ge=0, description="As slots.default_s, for jobs of that partition.")


class SlotConfig(Section):
    """[slots] collocated batch jobs that run a while, save, and go to the back of the queue."""

    enabled: bool = Field(True, description="Whether users may ask for slots (--coloc-slot).")
    default_s: int = Field(
        0,
        ge=0,
        description="Seconds of a slot for jobs without --coloc-slot; 0: none. A job that does not"
        " save loses nothing: colocd lets it run on.",
    )
    partitions: tuple[SlotRule, ...] = Field((), description="Other defaults, by partition.")
    min_s: int = Field(
        1800, ge=1, description="The shortest slot, seconds; a shorter request is raised to it."
    )
    max_s: int = Field(86400, ge=1, description="The longest slot, seconds.")
    signal_before_s: int = Field(
        120,
        ge=1,
        description="Seconds before its slot's end in which a job saves; at most half of the slot.",
    )
    signal: Literal["URG", "USR1", "USR2"] = Field(
        "URG",
        description="The signal sent then. URG is ignored by programs that do not expect it; USR1"
        " and USR2 end them.",
    )
    grace_s: int = Field(
        60, ge=1, description="Seconds after a slot's end in which a job leaves by itself."
    )
    cut: Literal["saved", "always", "never"] = Field(
        "saved",
        description="Which job colocd puts back into the queue if it still runs then. saved: one"
        " whose Comment says that it has saved since its signal (`coloc: saved $(date +%s)`);"
        " always: each, also one that loses its work; never: none. The others have no more slots.",
    )
    behind_s: int = Field(
        3600,
        ge=0,
        description="Seconds for which a job that comes back waits behind others of its priority.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "SlotConfig":
        if self.min_s > self.max_s:
            raise ValueError("min_s is above max_s")
        return self


class IdleConfig(Section):
    """[idle] what colocd does about --coloc jobs that hold a GPU and do not use it."""

    tell: bool = Field(
        True,
        description="Write a line into a job's output once it has shown no SM activity for"
        " agent.idle_after_s, once for each idle spell.",
    )
    cancel_after_s: int = Field(
        0,
        ge=0,
        le=30 * 86400,
        description="Seconds without SM activity after which a batch job is cancelled; 0: never.",
    )
    cancel_interactive_after_s: int = Field(
        0,
        ge=0,
        le=30 * 86400,
        description="The same for jobs of salloc and srun and those in interactive_partitions.",
    )
    trust_split: bool = Field(
        False,
        description="Whether a job is cancelled also where its activity is its part of what several"
        " jobs did on one GPU together. NVIDIA's driver tells the parts by process; under MPS"
        " nobody has checked them yet. false: only where nothing ran on the GPU at all, or the job"
        " had it, or its MIG device, to itself.",
    )
    warn_s: int = Field(
        600,
        ge=10,
        le=86400,
        description="A job is warned in its output so many seconds before it is cancelled; no job"
        " is cancelled that was not.",
    )
    interactive_partitions: tuple[str, ...] = Field(
        (),
        description="Partitions whose batch jobs are interactive: notebooks that a portal submits.",
    )
    spared_partitions: tuple[str, ...] = Field(
        (), description="Partitions in which no idle job is cancelled."
    )
