# SPDX-License-Identifier: Apache-2.0
"""The options of ``coloc simulate``, in the groups of its help."""

from pathlib import Path
from typing import Annotated, Any

import typer

JOBS, HOW = "What is simulated", "How jobs are placed"
SHARE, QUEUE = "When jobs may share a GPU", "Queue"
WATCH, AFTER = "What telemetry shows", "Memory and recovery"
NODE, GUESS, OUT = "Nodes", "What accounting does not record", "Output"


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, **more)


Trace = Annotated[
    Path | None,
    _option(JOBS, "Trace CSV: job,name,submit_s,gpus,run_s,memory_mib,smact[,user][,X_mib...]."),
]
Sacct = Annotated[
    Path | None,
    _option(
        JOBS,
        "Output of sacct -P; prints the admin's page. Its columns: see docs/simulate.md.",
    ),
]
Philly = Annotated[Path | None, _option(JOBS, "cluster_job_log of Microsoft's Philly trace.")]
Helios = Annotated[Path | None, _option(JOBS, "cluster_log.csv of SenseTime's Helios trace.")]
Partition = Annotated[
    list[str] | None, _option(JOBS, "Of --sacct these partitions alone; may be repeated.")
]
Gpus = Annotated[
    str,
    _option(
        JOBS,
        "Machines: [NODESx]GPUSxTYPE[:MIG+MIG], joined by commas. Default: 4xa100-40gb; for "
        "accounting files what was in use at once.",
    ),
]
Policy = Annotated[
    list[str] | None,
    _option(
        HOW,
        "A policy's name, best or exclusive; may be repeated. Default: best; for accounting files "
        "first-fit, as Slurm itself places.",
    ),
]
Search = Annotated[
    int,
    _option(
        HOW,
        "Schedules that --policy clairvoyant tries: it knows the whole trace beforehand and "
        "searches the shortest schedule that exists. For traces of some hundred jobs.",
        min=1,
    ),
]
Compare = Annotated[str, _option(HOW, "Several policies, joined by commas, in one table.")]
Estimator = Annotated[
    str,
    _option(
        HOW,
        "What is known of a job's memory: oracle, none, error:RATIO, or X of a column X_mib. "
        "Default: oracle; for accounting files error:0.1.",
    ),
]
Method = Annotated[str, _option(HOW, "How kernels share a GPU: mps, streams or mig.")]
Model = Annotated[
    str, _option(HOW, "How jobs slow each other down: reference or fitted.", "--interference")
]
Runs = Annotated[int, _option(HOW, "Runs with a little jitter; means are told.", min=1, max=10_000)]
Seed = Annotated[int, _option(HOW, "Of jitter, assumptions and simulated errors.")]
Budget = Annotated[
    float | None,
    _option(
        SHARE,
        "Most that the SM activities (alone) of a GPU's jobs may add up to. Default: none; "
        "with --sacct pool.compute_budget.",
        min=0.0,
    ),
]
JobsPerGpu = Annotated[
    int | None, _option(SHARE, "Most jobs on a GPU. Default: pool.max_jobs_per_gpu.", min=1, max=48)
]
ShareWith = Annotated[
    str,
    _option(
        SHARE, "Who may share a GPU: user, account or anyone. Default: anyone; with --sacct user."
    ),
]
MaxSlowdown = Annotated[
    float | None,
    _option(SHARE, "Longest time beside others over the time alone, as predicted.", min=1.0),
]
Pool = Annotated[
    int | None,
    _option(SHARE, "So many GPUs are shared, the others are whole. Default: all.", min=0),
]
Plan = Annotated[
    bool, _option(SHARE, "Whether a job must fit beside what is reserved.", "--plan/--no-plan")
]
MarginMib = Annotated[
    int | None, _option(SHARE, "Telemetry must show a job's need free, and so much more.", min=0)
]
FreeMib = Annotated[
    int | None,
    _option(SHARE, "Telemetry must show so much memory free (the thesis: 2048, 5120).", min=0),
]
SmactAtMost = Annotated[
    float | None,
    _option(
        SHARE,
        "Telemetry must show at most this SM activity (the thesis: 0.75 to 0.85).",
        min=0.0,
        max=1.0,
    ),
]
SmoccAtLeast = Annotated[
    float | None,
    _option(
        SHARE,
        "The gate above refuses only from this SM occupancy on (CARMA's later gate).",
        min=0.0,
        max=1.0,
    ),
]
DramaAtLeast = Annotated[
    float | None, _option(SHARE, "The same for DRAM activity.", min=0.0, max=1.0)
]
IdleFirst = Annotated[
    bool, _option(SHARE, "Share no GPU while one is idle.", "--idle-first/--no-idle-first")
]
Queue = Annotated[
    str,
    _option(
        QUEUE,
        "fifo (strict order), backfill (as Slurm's), or priority: by age and fair share, with "
        "backfill.",
    ),
]
Depth = Annotated[int, _option(QUEUE, "Waiting jobs that backfill looks at.", min=1)]
WindowS = Annotated[float, _option(WATCH, "Seconds that a figure is taken over.", min=1.0)]
Refreshed = Annotated[float, _option(WATCH, "Seconds between two looks.", min=1.0)]
Statistic = Annotated[str, _option(WATCH, "mean, or risk: CARMA's blend with the 95th percentile.")]
Fence = Annotated[
    bool,
    _option(
        AFTER, "A job that takes more than its reservation runs out itself.", "--fence/--no-fence"
    ),
]
RampS = Annotated[
    float, _option(AFTER, "Seconds after its launch in which a job's memory appears.", min=0.0)
]
Settle = Annotated[
    bool,
    _option(
        AFTER,
        "Nobody joins a GPU while a job's memory has not appeared there.",
        "--settle/--no-settle",
    ),
]
RecoverMib = Annotated[
    list[int] | None,
    _option(
        AFTER,
        "After an out-of-memory so much more is reserved before a whole GPU is; may be repeated.",
        min=1,
    ),
]
RecoverShared = Annotated[
    bool,
    _option(
        AFTER,
        "Others may join the GPU of a recovered job (the thesis).",
        "--recover-shared/--recover-alone",
    ),
]
RecoverFirst = Annotated[
    bool,
    _option(AFTER, "A recovered job goes before all that wait.", "--recover-first/--recover-last"),
]
RunError = Annotated[
    float | None,
    _option(
        QUEUE,
        "Each training ran here before the trace begins, and the run time that is expected from "
        "that is wrong by so much (median, ratio, e.g. 0.3). Default: run times are learned within "
        "the trace alone.",
        min=0.0,
    ),
]
Logs = Annotated[
    float | None,
    _option(
        QUEUE,
        "Part of the trainings whose log tells how far they are, so that a job's run time is known "
        "once a twentieth of it is done. Default: 0.75 with best, else 0.",
        min=0.0,
        max=1.0,
    ),
]
LearnPeaks = Annotated[
    bool,
    _option(
        AFTER,
        "What an ended run of the same name took counts more than an estimate (best always does).",
        "--learn-peaks",
    ),
]
Forgive = Annotated[
    int,
    _option(
        AFTER,
        "So often a job comes back unchanged if a neighbour took more than it had reserved.",
        min=0,
    ),
]
NodeCpus = Annotated[int, _option(NODE, "CPUs of a node; 0: never short.", min=0)]
NodeMemoryMib = Annotated[int, _option(NODE, "Host memory of a node; 0: never short.", min=0)]
MultiUserMps = Annotated[
    bool,
    _option(
        NODE,
        "Jobs of several users share one MPS server; else such a GPU works by time slices.",
        "--multi-user-mps/--single-user-mps",
    ),
]
Stretch = Annotated[
    bool,
    _option(NODE, "A shared job's time limit grows with its slowdown.", "--stretch/--no-stretch"),
]
MaxLimitS = Annotated[
    float | None,
    _option(NODE, "Longest time limit that --stretch may give (MaxTime). Default: none.", min=1.0),
]
PowerCurve = Annotated[
    str, _option(NODE, "Power of a GPU by its activity: thesis or profiles.", "--power")
]
AssumeSmact = Annotated[str, _option(GUESS, "Mean SM activity of jobs: low, mid, high or a ratio.")]
AssumeMemory = Annotated[
    str, _option(GUESS, "Mean GPU memory of jobs: low, mid, high or a ratio of the GPU's.")
]
Joining = Annotated[
    float, _option(GUESS, "Part of the jobs of one GPU that ask to share.", min=0.0, max=1.0)
]
History = Annotated[
    Path | None,
    _option(GUESS, "Output of coloc history --json: its peaks of GPU memory are used."),
]
Plot = Annotated[Path | None, _option(OUT, "Draw a picture (PNG, SVG or PDF).")]
Markdown = Annotated[Path | None, _option(OUT, "With --sacct: write the page as Markdown.")]
AsJson = Annotated[bool, _option(OUT, "Print JSON.", "--json")]
