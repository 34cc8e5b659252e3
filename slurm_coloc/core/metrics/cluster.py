# SPDX-License-Identifier: Apache-2.0
"""The series of colocd, from what its main process says and from its history."""

from collections.abc import Iterable, Sequence
from typing import Any

from slurm_coloc.core.metrics import catalog as m
from slurm_coloc.core.metrics.series import Histogram, Series, single
from slurm_coloc.core.records.queries import OpenRuns, Tally

#: Of the tallies of ratios: bins a unit.
BINS = 20


def of_cluster(
    version: str,
    status: dict[str, Any],
    tallies: Iterable[Tally],
    runs: Iterable[OpenRuns],
    open_work: int,
    now_s: float,
) -> list[Series]:
    """``status``: as `coloc status` has it, with the links of all nodes and the times of the
    answers to submissions (``submissions``)."""
    about = (version, *(str(status[name] or "") for name in ("mode", "role", "cluster", "slurm")))
    there = list(tallies)
    heard = ((link["node"], link["last_s"]) for link in status["links"])
    return [
        Series(m.DAEMON, [(about, 1.0)]),
        Series(m.DECISIONS, [(each.labels, each.n) for each in there if each.what == "decisions"]),
        Series(m.RUNS_ENDED, [(each.labels, each.n) for each in there if each.what == "runs"]),
        single(m.PEAK_TO_ESTIMATE, _ratios(there, "estimate")),
        single(m.PEAK_TO_RESERVED, _ratios(there, "reserved")),
        single(m.SUBMISSION, Histogram.of(m.SUBMISSION, status["submissions"])),
        Series(m.RUNS, [((each.state, each.action), float(each.runs)) for each in runs]),
        single(m.RECOVERIES, float(open_work)),
        single(m.NODES, float(status["gpu_nodes"])),
        single(m.NODES_LINKED, float(status["linked_nodes"])),
        single(m.GPUS, float(status["gpus"])),
        single(m.SHARDS, float(status["shards"])),
        Series(
            m.NODE_SEEN,
            [((node,), max(0.0, now_s - last_s)) for node, last_s in heard if last_s is not None],
        ),
    ]


def _ratios(tallies: Sequence[Tally], what: str) -> Histogram:
    """The histogram of a ratio from its bins of 1/BINS, of which each bound is an end."""
    found = Histogram(m.RATIOS)
    for each in tallies:
        if each.what != what:
            continue
        if not each.labels:
            found.total = each.n
            continue
        end = int(each.labels[0])
        place = sum(end > round(bound * BINS) for bound in m.RATIOS)
        found.counts[place] += int(each.n)
    return found
