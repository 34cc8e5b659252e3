# SPDX-License-Identifier: Apache-2.0
"""The GPU nodes: Prolog, Epilog and agent."""

from pathlib import Path

from pydantic import Field

from slurm_coloc.config.base import Section


class HooksConfig(Section):
    """[hooks] Prolog and Epilog on the GPU nodes."""

    spool_dir: Path = Field(
        Path("/var/spool/slurm-coloc"),
        description="Where the Epilog keeps reports that colocd has not taken yet.",
    )
    run_dir: Path = Field(
        Path("/run/slurm-coloc-jobs"), description="State of the jobs that run on this node."
    )
    log_tail_kib: int = Field(
        256, ge=4, le=16384, description="KiB of the end of each log that the Epilog reads."
    )
    nvml: bool = Field(True, description="Ask NVML for UUIDs and free memory in the Prolog.")


class AgentConfig(Section):
    """[agent] what `coloc agent` measures on a GPU node, each second."""

    sample: bool = Field(True, description="Measure what each job uses; false: a link alone.")
    dcgmi: Path = Field(
        Path("/usr/bin/dcgmi"),
        description="DCGM's program, for SM activity and the other profiling counters. Where it is"
        " missing they come from NVML (GPM, Hopper and later).",
    )
    job_stats: bool = Field(
        False,
        description="Have DCGM keep its own statistics (dcgmi stats: energy, memory, utilization,"
        " ECC errors, slowdowns) of jobs that have whole GPUs to themselves, for `coloc report`.",
    )
    idle_after_s: int = Field(
        1800,
        ge=0,
        le=30 * 86400,
        description="Seconds without SM activity after which a GPU is held idle; 0: never.",
    )
    window_s: int = Field(
        90,
        ge=1,
        le=3600,
        description="Seconds that a GPU's activities and power are means of, in `coloc gpus` and in"
        " what placement decides on (the thesis: 90).",
    )
    beat_s: int = Field(
        20,
        ge=1,
        le=30,
        description="Seconds between two words of a node to colocd; below placement.stale_s.",
    )
    job_mapping_dir: Path | None = Field(
        None,
        description="Folder of dcgm-exporter's --hpc-job-mapping-dir, to be filled; none: not.",
    )
    log_read_s: int = Field(
        0,
        ge=0,
        le=3600,
        description="Seconds between two looks at the end of each --coloc job's log, for the time"
        " that the training still takes, and for how fast it is beside others (placement.plan): a"
        " child with the job's uid reads it and gives numbers back. 30 is a good value; 0: no log"
        " is read while a job runs.",
    )
