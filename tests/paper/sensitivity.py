# SPDX-License-Identifier: Apache-2.0
"""How far the counts of crashes hang on what nobody measured: the same rows with other assumptions.

What is not known of the thesis' runs: how soon a training's memory is there after its launch, how
old telemetry was at a decision, and how far the SM activity and the memory that the author's later
profiles show differ from those of his runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from estimator.power.thesis import run_way
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.telemetry import Monitor
from slurm_coloc.sim.trace import TraceJob
from tests.paper.cases import of_row
from tests.paper.facts import Published
from tests.paper.play import Lab

#: few runs: what is looked for is larger than the spread of their mean
RUNS = 10


def same_setting(setting: Setting) -> Setting:
    """As it is."""
    return setting


def same_job(job: TraceJob) -> TraceJob:
    """As it is."""
    return job


@dataclass(frozen=True, slots=True)
class Variant:
    """One other assumption."""

    name: str
    setting: Callable[[Setting], Setting] = same_setting
    job: Callable[[TraceJob], TraceJob] = same_job


def _ramp(seconds: float) -> Callable[[Setting], Setting]:
    return lambda setting: replace(setting, ramp_s=seconds)


def _refresh(seconds: float) -> Callable[[Setting], Setting]:
    return lambda setting: replace(setting, monitor=Monitor(90.0, seconds))


def _smact(factor: float) -> Callable[[TraceJob], TraceJob]:
    def change(job: TraceJob) -> TraceJob:
        smact = min(1.0, job.activity.smact * factor)
        return replace(job, activity=replace(job.activity, smact=smact))

    return change


def _memory(factor: float) -> Callable[[TraceJob], TraceJob]:
    return lambda job: replace(job, memory_mib=round(job.memory_mib * factor))


VARIANTS = (
    Variant("as in the table: memory 45 s after the launch, telemetry every 90 s"),
    Variant("memory after 15 s", _ramp(15.0)),
    Variant("telemetry every 30 s", _refresh(30.0)),
    Variant("SM activity 3 % lower", job=_smact(0.97)),
    Variant("SM activity 4 % higher", job=_smact(1.04)),
    Variant("memory 12 % lower, as in the author's later profiles", job=_memory(0.88)),
)


def counts(variant: Variant, rows: Sequence[Published], lab: Lab) -> Mapping[str, float]:
    """Mean crashes of each row."""
    found = {}
    for row in rows:
        way = of_row(row).way
        assert way is not None
        way = replace(way, setting=variant.setting(way.setting))
        runs = [
            run_way(way, [variant.job(job) for job in jobs], lab.machine).oom
            for jobs in lab.variations(row.trace)[:RUNS]
        ]
        found[row.id] = fmean(runs)
    return found


def table(rows: Sequence[Published], lab: Lab) -> list[str]:
    """Markdown: a line an assumption, a column a row."""
    mine = [row for row in rows if row.metric == "oom_crashes" and row.policy != "Exclusive"]
    lines = [
        ("crashes", *(row.id.removeprefix("T") for row in mine)),
        ("---", *("---" for _ in mine)),
        ("published", *(row.value for row in mine)),
    ]
    for variant in VARIANTS:
        found = counts(variant, mine, lab)
        lines.append((variant.name, *(f"{found[row.id]:.1f}" for row in mine)))
    return ["| " + " | ".join(cells) + " |" for cells in lines]
