# SPDX-License-Identifier: Apache-2.0
"""The trace CSV: job,name,submit_s,gpus,run_s,memory_mib,smact[,...][,X_mib ...].

Further columns that are known: user, account, smocc, drama, gract, sensitivity, limit_s, coloc (0
or 1), cpus, host_mib. Every other column that ends in _mib is an estimator; an empty cell is "no
estimate". Columns with other names are not used, and said so.
"""

import math
from pathlib import Path

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.readers.cells import Cells, Table
from slurm_coloc.sim.trace import TraceJob

NEEDED = ("job", "name", "submit_s", "gpus", "run_s", "memory_mib", "smact")
MORE = (
    "user", "account", "smocc", "drama", "gract", "sensitivity",
    "limit_s", "coloc", "cpus", "host_mib",
)  # fmt: skip
OWN = frozenset((*NEEDED, *MORE))
#: What the thesis' scripts write for "does not fit, or no estimate" (MiB), in their own three
#: columns alone: elsewhere, on a GPU of 80 GB, 40,000 MiB is an estimate like any other.
NO_ESTIMATE = 40000.0
THESIS = frozenset({"horus_mib", "faketensor_mib", "gpumemnet_mib"})
MOST_GPUS = 100_000


def read_trace(path: Path, notes: list[str] | None = None) -> list[TraceJob]:
    """The jobs of a file, in its order. What a reader should know is added to ``notes``. Raises
    UsageFault that names file, line and column."""
    table = Table(path, NEEDED)
    jobs: list[TraceJob] = []
    lines: dict[int, str] = {}
    for row in table.rows():
        job = _job(row, table.columns)
        if job.id in lines:
            raise row.fault("job", f"stands in {lines[job.id].rpartition(', ')[2]} already")
        lines[job.id] = row.where
        jobs.append(job)
    if not jobs:
        raise UsageFault(f"{path}: no jobs")
    unused = [name for name in table.columns if name not in OWN and not name.endswith("_mib")]
    if unused and notes is not None:
        notes.append(
            f"columns that are not used: {', '.join(name or '(no name)' for name in unused)}"
        )
    return jobs


def _job(row: Cells, columns: list[str]) -> TraceJob:
    sensitivity = row.maybe("sensitivity", 0.0, 1.0)
    return TraceJob(
        id=row.whole("job", 0),
        name=row.text("name"),
        submit_s=row.number("submit_s", 0.0),
        gpus=row.whole("gpus", 1, MOST_GPUS),
        run_s=row.number("run_s", 0.0),
        memory_mib=math.ceil(row.number("memory_mib", 0.0)),
        activity=Activity(
            smact=row.number("smact", 0.0, 1.0),
            smocc=row.maybe("smocc", 0.0, 1.0),
            drama=row.maybe("drama", 0.0, 1.0),
            gract=row.maybe("gract", 0.0, 1.0),
            sensitivity=1.0 if sensitivity is None else sensitivity,
            fingerprint=row.text("name"),
        ),
        user=row.text("user"),
        account=row.text("account"),
        limit_s=row.maybe("limit_s", 0.0),
        coloc=not row.text("coloc") or row.whole("coloc", 0, 1) == 1,
        cpus=row.whole("cpus", 0) if row.text("cpus") else 0,
        host_mib=math.ceil(row.maybe("host_mib", 0.0) or 0.0),
        estimates={
            name.removesuffix("_mib"): _estimate(row, name)
            for name in columns
            if name.endswith("_mib") and name not in OWN
        },
    )


def _estimate(row: Cells, column: str) -> int | None:
    value = row.maybe(column, 0.0)
    if value is None or (column in THESIS and value == NO_ESTIMATE):
        return None
    return math.ceil(value)
