# SPDX-License-Identifier: Apache-2.0
"""The folder of facts: published values, the thesis' two traces, activity of single trainings.

It is no part of the project. COLOC_FACTS names it; the default is ../shared/facts beside the
checkout.
"""

import csv
import os
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_coloc.sim.readers.trace_csv import read_trace
from slurm_coloc.sim.trace import TraceJob

ROOT = Path(__file__).resolve().parents[2]
#: the thesis' traces, as expected.csv names them
TRACES = ("60", "90")


@dataclass(frozen=True, slots=True)
class Published:
    """One published value. ``number`` is None where it is a word."""

    id: str
    trace: str
    policy: str
    method: str
    conditions: str
    metric: str
    value: str
    unit: str
    note: str

    @property
    def number(self) -> float | None:
        """The value as a number."""
        try:
            return float(self.value)
        except ValueError:
            return None


def folder() -> Path | None:
    """Where the facts are; None where they are not."""
    path = Path(os.environ.get("COLOC_FACTS") or ROOT.parent / "shared" / "facts")
    return path if (path / "expected.csv").is_file() else None


def published(path: Path) -> list[Published]:
    """Every row of expected.csv."""
    with (path / "expected.csv").open(newline="", encoding="utf-8") as file:
        return [
            Published(
                row["id"],
                row["trace"],
                row["policy"],
                row["method"],
                row["conditions"],
                row["metric"],
                row["value"],
                row["unit"],
                row["note"],
            )
            for row in csv.DictReader(file)
        ]


def trace(path: Path, name: str) -> list[TraceJob]:
    """One of the thesis' traces, with occupancy and DRAM activity where a training of that name
    was profiled."""
    jobs = read_trace(path / f"jobs_{name}.csv")
    with (path / "activity.csv").open(newline="", encoding="utf-8") as file:
        known = {row["config"]: row for row in csv.DictReader(file)}
    return [_with_activity(job, known) for job in jobs]


def _with_activity(job: TraceJob, known: dict[str, dict[str, str]]) -> TraceJob:
    row = known.get(job.name)
    if row is None:
        return job
    activity = replace(job.activity, smocc=float(row["smocc_mean"]), drama=float(row["drama_mean"]))
    return replace(job, activity=activity)
