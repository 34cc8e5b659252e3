# SPDX-License-Identifier: Apache-2.0
"""Every metric by name, with its labels and its meaning. docs/reference/metrics.md is made of
it.

Labels: ``slurmjobid`` is SLURM_JOB_ID, of an array's task its own; ``gpu`` NVML's number of the
GPU, ``0:7`` for GPU instance 7 of GPU 0 (``0:7:1`` for its second compute instance); ``UUID`` and
``GPU_I_ID`` are the whole GPU's UUID and the GPU instance as dcgm-exporter has them, so that its
series can be joined to ours.
"""

from typing import Literal, NamedTuple

Kind = Literal["gauge", "counter", "histogram", "info"]
#: What a site may choose of (metrics.names): ours, and the names that others' dashboards read.
Names = Literal["coloc", "slurm_job", "nvidia_gpu"]


class Metric(NamedTuple):
    """``name`` without what the format adds (_total, _bucket, _info); ``bounds``: of a histogram,
    the upper ends of its buckets."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    text: str
    bounds: tuple[float, ...] = ()


_DEVICE = ("gpu", "UUID", "GPU_I_ID")
_SHARE = ("slurmjobid", *_DEVICE)
_SLURM_JOB = ("user", "account", "slurmjobid", "gpu", "gpu_type")
_NVIDIA_GPU = ("ordinal", "minor_number", "uuid", "name", "GPU_I_ID", "jobid", "userid")
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
RATIOS = (0.25, 0.5, 0.75, 0.9, 0.95, 1.0, 1.05, 1.1, 1.25, 1.5, 2.0)

# Of the agent: jobs

JOB = Metric(
    "coloc_job", "info", ("slurmjobid", "user", "account", "method", *_DEVICE, "gpu_type"),
    "A job on a GPU, and how it shares it: mps, streams, alone. To join other series to jobs.",
)  # fmt: skip
JOB_MEMORY = Metric(
    "coloc_job_memory_bytes", "gauge", _SHARE, "GPU memory that the job's processes hold there."
)
JOB_RESERVED = Metric(
    "coloc_job_memory_reserved_bytes", "gauge", _SHARE,
    "GPU memory that the job was promised there: its share, or all of a GPU that it has alone.",
)  # fmt: skip
JOB_ACTIVITY = Metric(
    "coloc_job_sm_activity_ratio", "gauge", _SHARE,
    "The job's part of the SM activity, mean of agent.window_s. Beside others it is divided, not"
    " measured; coloc_gpu_jobs tells where.",
)  # fmt: skip
JOB_POWER = Metric(
    "coloc_job_power_watts", "gauge", _SHARE,
    "The job's part of the GPU's power, divided as the activity is.",
)  # fmt: skip
JOB_OVERRUN = Metric(
    "coloc_job_overrun_bytes", "gauge", _SHARE,
    "GPU memory that the job holds above what it was promised, while it does.",
)  # fmt: skip
JOB_IDLE = Metric(
    "coloc_job_idle_seconds", "gauge", ("slurmjobid",),
    "For how long a job has held a GPU without SM activity (after agent.idle_after_s).",
)  # fmt: skip

# Of the agent: GPUs and MIG devices

GPU_TOTAL = Metric("coloc_gpu_memory_total_bytes", "gauge", _DEVICE, "Memory of the GPU.")
GPU_USED = Metric("coloc_gpu_memory_used_bytes", "gauge", _DEVICE, "Memory that is not free.")
GPU_RESERVED = Metric(
    "coloc_gpu_memory_reserved_bytes", "gauge", _DEVICE, "Memory that jobs were promised there."
)
GPU_FOREIGN = Metric(
    "coloc_gpu_memory_foreign_bytes", "gauge", _DEVICE, "Memory of processes that are of no job."
)
GPU_ACTIVITY = Metric(
    "coloc_gpu_sm_activity_ratio", "gauge", _DEVICE, "SM activity, mean of agent.window_s."
)
GPU_POWER = Metric(
    "coloc_gpu_power_watts", "gauge", _DEVICE, "Power of the GPU, mean of agent.window_s."
)
GPU_JOBS = Metric(
    "coloc_gpu_jobs", "gauge", _DEVICE, "Jobs that have the GPU or hold memory there."
)

# Of the agent: itself

AGENT = Metric("coloc_agent", "info", ("version",), "The agent's release.")
AGENT_LINKED = Metric("coloc_agent_linked", "gauge", (), "1 while the agent has a link to colocd.")
AGENT_SPOOLED = Metric(
    "coloc_agent_spooled_reports", "gauge", (), "Reports of ended jobs that colocd has not taken."
)
AGENT_AGE = Metric(
    "coloc_agent_sample_age_seconds", "gauge", (),
    "Age of the last sample of the GPUs; not there before the first one.",
)  # fmt: skip
LEFT_OUT = Metric(
    "coloc_agent_series_left_out", "gauge", (), "Jobs on GPUs that are not told: too many of them."
)
OVERRUNS = Metric(
    "coloc_overruns", "counter", (), "Times that a job began to hold more than it was promised."
)
PROLOG = Metric(
    "coloc_prolog_seconds", "histogram", (), "Time that our part of the Prolog took.", _SECONDS
)
EPILOG = Metric(
    "coloc_epilog_seconds", "histogram", (),
    "Time that our part of the Epilog took until its report.", _SECONDS,
)  # fmt: skip

# Of colocd

DAEMON = Metric(
    "coloc_daemon", "info", ("version", "mode", "role", "cluster", "slurm"),
    "colocd's release, its mode (on, observe, off) and role (active, standby), and slurmctld's.",
)  # fmt: skip
DECISIONS = Metric(
    "coloc_decisions", "counter", ("action", "reason", "mode"),
    "Submissions that were decided (reference/codes.md has the words).",
)  # fmt: skip
RUNS_ENDED = Metric(
    "coloc_runs_ended", "counter", ("outcome", "verdict", "shared"),
    "Runs that ended: how, what was done then, and whether the run had a share.",
)  # fmt: skip
PEAK_TO_ESTIMATE = Metric(
    "coloc_peak_to_estimate_ratio", "histogram", (),
    "Measured peak over the estimate, of runs with a share whose peak is known.", RATIOS,
)  # fmt: skip
PEAK_TO_RESERVED = Metric(
    "coloc_peak_to_reserved_ratio", "histogram", (),
    "Measured peak over what was reserved, of runs with a share whose peak is known.", RATIOS,
)  # fmt: skip
SUBMISSION = Metric(
    "coloc_submission_seconds", "histogram", (),
    "Time from slurmctld's question about a submission to colocd's answer.", _SECONDS,
)  # fmt: skip
RUNS = Metric(
    "coloc_runs", "gauge", ("state", "action"),
    "Jobs that colocd follows now, by Slurm's state and what was decided.",
)  # fmt: skip
RECOVERIES = Metric("coloc_recoveries_open", "gauge", (), "Recoveries that are under way.")
NODES = Metric("coloc_gpu_nodes", "gauge", (), "Nodes with GPUs.")
NODES_LINKED = Metric("coloc_gpu_nodes_linked", "gauge", (), "Nodes whose agent was heard lately.")
GPUS = Metric("coloc_gpus", "gauge", (), "GPUs of these nodes.")
SHARDS = Metric("coloc_shards", "gauge", (), "Shards of these nodes.")
NODE_SEEN = Metric(
    "coloc_node_heard_seconds", "gauge", ("node",), "Time since the node's agent was heard last."
)

# Names that slurm-job-exporter has and its users' dashboards read

SJE_USED = Metric(
    "slurm_job_memory_usage_gpu", "gauge", _SLURM_JOB, "Memory of the job on the GPU (bytes)."
)
SJE_TOTAL = Metric(
    "slurm_job_memory_total_gpu", "gauge", _SLURM_JOB,
    "Memory that the job may use of the GPU (bytes): of a share what is reserved.",
)  # fmt: skip
SJE_POWER = Metric("slurm_job_power_gpu", "gauge", _SLURM_JOB, "Power of the job's part (mW).")
SJE_BUSY = Metric(
    "slurm_job_utilization_gpu", "gauge", _SLURM_JOB,
    "The job's part of the SM activity (%); without counters, of the time with its kernels.",
)  # fmt: skip
SJE_DRAM = Metric(
    "slurm_job_utilization_gpu_memory", "gauge", _SLURM_JOB,
    "DRAM activity (%), of jobs that are alone on their GPU.",
)  # fmt: skip
SJE_OCCUPANCY = Metric(
    "slurm_job_sm_occupancy_gpu", "gauge", _SLURM_JOB,
    "SM occupancy (%), of jobs that are alone on their GPU.",
)  # fmt: skip
SJE_PCIE = Metric(
    "slurm_job_pcie_gpu", "gauge", (*_SLURM_JOB, "direction"),
    "PCIe traffic (bytes/s), of jobs that are alone on their GPU.",
)  # fmt: skip

# Names that jobstats and its dashboard read

NVG_JOB = Metric(
    "nvidia_gpu_jobId", "gauge", _NVIDIA_GPU, "The job's id; 0 for a GPU without jobs."
)
NVG_UID = Metric("nvidia_gpu_jobUid", "gauge", _NVIDIA_GPU, "The uid of the job's owner.")
NVG_DUTY = Metric(
    "nvidia_gpu_duty_cycle", "gauge", _NVIDIA_GPU,
    "Time with a kernel of this job (%); where that is not known, its part of the SM activity.",
)  # fmt: skip
NVG_USED = Metric(
    "nvidia_gpu_memory_used_bytes", "gauge", _NVIDIA_GPU, "Memory of the job on the GPU."
)
NVG_TOTAL = Metric(
    "nvidia_gpu_memory_total_bytes", "gauge", _NVIDIA_GPU,
    "Memory that the job may use of the GPU: of a share what is reserved.",
)  # fmt: skip
NVG_POWER = Metric(
    "nvidia_gpu_power_usage_milliwatts", "gauge", _NVIDIA_GPU, "Power of the job's part."
)

OF_JOBS = (JOB, JOB_MEMORY, JOB_RESERVED, JOB_ACTIVITY, JOB_POWER, JOB_OVERRUN)
OF_GPUS = (GPU_TOTAL, GPU_USED, GPU_RESERVED, GPU_FOREIGN, GPU_ACTIVITY, GPU_POWER, GPU_JOBS)
#: What each program tells, in the order of the page.
OF_AGENT: dict[Names, tuple[Metric, ...]] = {
    "coloc": (
        *(*OF_JOBS, JOB_IDLE, *OF_GPUS, AGENT, AGENT_LINKED, AGENT_SPOOLED, AGENT_AGE),
        *(LEFT_OUT, OVERRUNS, PROLOG, EPILOG),
    ),
    "slurm_job": (SJE_USED, SJE_TOTAL, SJE_POWER, SJE_BUSY, SJE_DRAM, SJE_OCCUPANCY, SJE_PCIE),
    "nvidia_gpu": (NVG_JOB, NVG_UID, NVG_DUTY, NVG_USED, NVG_TOTAL, NVG_POWER),
}
OF_COLOCD = (
    *(DAEMON, DECISIONS, RUNS_ENDED, PEAK_TO_ESTIMATE, PEAK_TO_RESERVED, SUBMISSION, RUNS),
    *(RECOVERIES, NODES, NODES_LINKED, GPUS, SHARDS, NODE_SEEN),
)
