# SPDX-License-Identifier: Apache-2.0
"""A scenario of ``coloc simulate``: every key with its default, range and meaning.

A key with an option can be given on the command line by that option, every other one with --set or
in the file of --scenario. A key that is None takes the default that its text names.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from slurm_coloc.config.base import Section


def _key(default: Any, text: str, **bounds: Any) -> Any:
    """A key that only --set and a file set."""
    return Field(default, description=text, **bounds)


def _option(default: Any, text: str, option: str = "", **bounds: Any) -> Any:
    """A key that an option sets too: ``option``, or the one of the key's own name."""
    return Field(default, description=text, json_schema_extra={"option": option}, **bounds)


def _items(value: object) -> object:
    """The items of a list, or of a text in which commas part them."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple):
        return value
    parts = [item.split(",") if isinstance(item, str) else [item] for item in given]
    items = [item.strip() if isinstance(item, str) else item for part in parts for item in part]
    return [item for item in items if item != ""]


#: low, mid, high, or a number
Level = Annotated[str, BeforeValidator(str)]
Names = Annotated[tuple[str, ...], BeforeValidator(_items)]
Sizes = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_items)]


class ConditionKeys(Section):
    """[conditions] When jobs may share a GPU."""

    by_plan: bool = _option(
        True, "Whether a job must fit beside what is reserved.", "--plan/--no-plan"
    )
    jobs: int | None = _option(
        None, "Most jobs on a GPU. Default: pool.max_jobs_per_gpu.", "--jobs-per-gpu", ge=1, le=48
    )
    share_with: Literal["user", "account", "anyone"] | None = _option(
        None,
        "Who may share a GPU: user, account or anyone. Default: anyone; with --sacct sharing.with.",
    )
    budget: float | None = _option(
        None,
        "Most that the SM activities (alone) of a GPU's jobs may add up to. Default: none.",
        ge=0.0,
    )
    max_slowdown: float | None = _option(
        None, "Longest time beside others over the time alone, as predicted.", ge=1.0
    )
    idle_first: bool = _option(
        False, "Share no GPU while one is idle.", "--idle-first/--no-idle-first"
    )
    margin_mib: int | None = _option(
        None, "Telemetry must show the memory that a job needs as free, and so much more.", ge=0
    )
    free_mib: int | None = _option(
        None, "Telemetry must show so much memory as free (the thesis: 2048, 5120).", ge=0
    )
    smact_at_most: float | None = _option(
        None,
        "Telemetry must show at most this SM activity (ratio; the thesis: 0.75 to 0.85).",
        ge=0.0,
        le=1.0,
    )
    smocc_at_least: float | None = _key(
        None,
        "smact_at_most refuses only from this SM occupancy on (ratio; CARMA's later gate).",
        ge=0.0,
        le=1.0,
    )
    drama_at_least: float | None = _key(None, "The same for DRAM activity (ratio).", ge=0.0, le=1.0)


class QueueKeys(Section):
    """[queue] The order of waiting jobs, and what is known of their run times."""

    order: Literal["fifo", "backfill", "priority"] = _option(
        "backfill",
        "fifo (strict order), backfill (as Slurm's), or priority: by age and fair share, with "
        "backfill.",
        "--queue",
    )
    depth: int = _key(50, "Waiting jobs that backfill considers.", ge=1)
    run_error: float | None = _key(
        None,
        "Each training ran here before the trace begins, and the run time that is expected from "
        "that is wrong by so much (median, ratio, e.g. 0.3). Default: run times are learned within "
        "the trace alone.",
        ge=0.0,
    )
    logs: float | None = _option(
        None,
        "Part of the trainings whose log shows how far they are, so that a job's run time is known "
        "once a twentieth of it is done (ratio). Default: 0.75 with best, else 0.",
        ge=0.0,
        le=1.0,
    )


class MonitorKeys(Section):
    """[monitor] What telemetry shows."""

    window_s: float = _key(90.0, "The time that a figure is taken over.", ge=1.0)
    refresh_s: float = _key(90.0, "The time between two measurements.", ge=1.0)
    statistic: Literal["mean", "risk"] = _key(
        "mean", "mean, or risk: CARMA's blend with the 95th percentile."
    )


class MemoryKeys(Section):
    """[memory] How the memory of a job appears and what is known of it."""

    fence: bool = _option(
        False,
        "A job that takes more than its reservation runs out of memory itself.",
        "--fence/--no-fence",
    )
    ramp_s: float = _key(45.0, "How long after its launch a job's memory appears.", ge=0.0)
    settle: bool = _key(
        False, "No job joins a GPU while the memory of another one has not appeared there."
    )
    learn_peaks: bool = _key(
        False,
        "The peak of an ended run of the same name counts more than an estimate (always with "
        "best).",
    )


class RecoveryKeys(Section):
    """[recovery] What happens to a job that ran out of GPU memory."""

    more_mib: Sizes = _key(
        (), "Steps by which more memory is reserved before the job gets a whole GPU."
    )
    joinable: bool = _key(False, "Others may join the GPU of a recovered job (the thesis).")
    first: bool = _key(True, "A recovered job goes before all that wait.")
    forgiven: int = _key(
        0,
        "How often a job comes back unchanged if a neighbour took more than it had reserved.",
        ge=0,
    )


class NodeKeys(Section):
    """[nodes] What a node has besides GPUs, and its time limits."""

    cpus: int = _key(0, "CPUs of a node; 0: never short.", ge=0)
    memory_mib: int = _key(0, "Host memory of a node; 0: never short.", ge=0)
    multi_user_mps: bool = _key(
        True, "Jobs of several users share one MPS server; else such a GPU works by time slices."
    )
    stretch: bool = _key(True, "The time limit of a job that shares grows with its slowdown.")
    max_limit_s: float | None = _key(
        None, "Longest time limit that stretch may give (MaxTime). Default: none.", ge=1.0
    )


class AssumeKeys(Section):
    """[assume] What accounting does not record."""

    smact: Level = _option(
        "mid", "Mean SM activity of jobs: low, mid, high or a ratio.", "--assume-smact"
    )
    memory: Level = _option(
        "mid", "Mean GPU memory of jobs: low, mid, high or a ratio of the GPU's.", "--assume-memory"
    )
    joining: float = _option(
        1.0, "Part of the jobs of one GPU that ask to share (ratio).", ge=0.0, le=1.0
    )


class Scenario(Section):
    """What is simulated, under which policy."""

    trace: Path | None = _option(
        None, "Trace CSV: job,name,submit_s,gpus,run_s,memory_mib,smact[,user][,X_mib...]."
    )
    sacct: Path | None = _option(
        None, "Output of sacct -P; prints the admin's page. Its columns: see docs/simulate.md."
    )
    observed: bool = _option(
        False,
        "The jobs that the agents measured here while colocd observed; prints the admin's"
        " page. For root and SlurmUser.",
    )
    days: float = _option(30.0, "Of --observed the last so many days.", gt=0, le=3660)
    philly: Path | None = _option(None, "cluster_job_log of Microsoft's Philly trace.")
    helios: Path | None = _option(None, "cluster_log.csv of SenseTime's Helios trace.")
    partition: Names = _option((), "Of --sacct these partitions alone; may be repeated.")
    history: Path | None = _option(
        None, "With --sacct: output of coloc history --json, whose peaks of GPU memory are used."
    )
    gpus: str = _option(
        "",
        "Machines: [NODESx]GPUSxTYPE[:MIG+MIG], joined by commas. Default: 4xa100-40gb; for "
        "accounting files what was in use at once.",
    )
    pool: int | None = _option(
        None, "So many GPUs are shared, the others are whole. Default: all.", ge=0
    )
    policy: Names = _option(
        (),
        "A policy's name, best or exclusive; steered and planned: as colocd places by the site's "
        "own keys, without and with a plan of the queue; may be repeated. Default: best; for "
        "accounting files first-fit, as Slurm itself places.",
    )
    compare: Names = _option((), "Several policies, joined by commas, in one table.")
    search: int = _option(
        200_000,
        "Schedules that --policy clairvoyant tries: it knows the whole trace beforehand and "
        "searches the shortest schedule that exists. For traces of some hundred jobs.",
        ge=1,
    )
    estimator: str = _option(
        "",
        "What is known of a job's memory: oracle, none, error:RATIO, or X of a column X_mib. "
        "Default: oracle; for accounting files error:0.1.",
    )
    method: Literal["mps", "streams", "mig"] = _option(
        "mps", "How kernels share a GPU: mps, streams or mig."
    )
    interference: str = _option(
        "reference",
        "How jobs slow each other down: reference, fitted (A100-40GB), or product (other cards).",
    )
    power: str = _option("thesis", "Power of a GPU by its activity: thesis or profiles.")
    runs: int = _option(
        1,
        "Runs of the trace, each with a little jitter where there are several; the answer has "
        "their means.",
        ge=1,
        le=10_000,
    )
    seed: int = _option(0, "Of jitter, assumptions and simulated errors.")
    conditions: ConditionKeys = ConditionKeys()
    queue: QueueKeys = QueueKeys()
    monitor: MonitorKeys = MonitorKeys()
    memory: MemoryKeys = MemoryKeys()
    recovery: RecoveryKeys = RecoveryKeys()
    nodes: NodeKeys = NodeKeys()
    assume: AssumeKeys = AssumeKeys()
