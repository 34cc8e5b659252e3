# SPDX-License-Identifier: Apache-2.0
"""The trace CSV: job,name,submit_s,gpus,run_s,memory_mib,smact[,...][,X_mib ...].

Further columns that are known: user, account, smocc, drama, gract, sensitivity, limit_s, coloc (0
or 1), cpus, host_mib. Every other column that ends in _mib is an estimator; an empty cell, or one
of 40,000 and more as the thesis' scripts write it, is "no estimate".
"""

import csv
import math
from collections.abc import Mapping
from pathlib import Path

from slurm_coloc.core.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.trace import TraceJob

NEEDED = ("job", "name", "submit_s", "gpus", "run_s", "memory_mib", "smact")
OWN = (*NEEDED, "host_mib")
#: what the thesis' scripts write for "does not fit, or no estimate" (MiB)
NO_ESTIMATE = 40000.0


def read_trace(path: Path) -> list[TraceJob]:
    """The jobs of a file, in its order. Raises UsageFault that names file, line and column."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            header = rows.fieldnames or []
            missing = [name for name in NEEDED if name not in header]
            if missing:
                raise UsageFault(f"{path}: no column {', '.join(missing)}")
            jobs = [_job(row, f"{path}, line {rows.line_num}") for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as err:
        raise UsageFault(f"{path}: cannot be read: {err}") from err
    if not jobs:
        raise UsageFault(f"{path}: no jobs")
    return jobs


def _job(row: Mapping[str, str], where: str) -> TraceJob:
    def number(name: str, low: float, default: float | None = None) -> float:
        text = (row.get(name) or "").strip()
        if not text and default is not None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= low):
            raise UsageFault(f"{where}: {name} is {text!r}, not a number of {low:g} or more")
        return value

    def maybe(name: str) -> float | None:
        return number(name, 0.0) if (row.get(name) or "").strip() else None

    activity = Activity(
        smact=number("smact", 0.0),
        smocc=maybe("smocc"),
        drama=maybe("drama"),
        gract=maybe("gract"),
        sensitivity=number("sensitivity", 0.0, 1.0),
    )
    estimates = {
        name.removesuffix("_mib"): _estimate(number(name, 0.0, math.inf))
        for name in row
        if name and name.endswith("_mib") and name not in OWN
    }
    return TraceJob(
        id=int(number("job", 0)),
        name=row["name"].strip(),
        submit_s=number("submit_s", 0.0),
        gpus=int(number("gpus", 1)),
        run_s=number("run_s", 0.0),
        memory_mib=round(number("memory_mib", 0.0)),
        activity=activity,
        user=(row.get("user") or "").strip(),
        account=(row.get("account") or "").strip(),
        limit_s=maybe("limit_s"),
        coloc=number("coloc", 0, 1) != 0,
        cpus=int(number("cpus", 0, 0)),
        host_mib=round(number("host_mib", 0, 0)),
        estimates=estimates,
    )


def _estimate(value: float) -> int | None:
    return None if value >= NO_ESTIMATE else math.ceil(value)
