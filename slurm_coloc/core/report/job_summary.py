# SPDX-License-Identifier: Apache-2.0
"""A run's use as jobstats keeps it in AdminComment (core/slurm/jobstats).

jobstats -j, reportseff and job_defense_shield read it. Of a share, a GPU's total memory is what was
reserved and the utilization is the run's own part. The form is that of jobstats' documentation
(Setup, Generating Job Summaries).
"""

import re
from dataclasses import dataclass
from typing import Any

from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.slurm.job import MARK, comment_with, mark_in
from slurm_coloc.core.slurm.jobstats import packed

MIB = 2**20
#: A summary, perhaps with what divides it from a mark.
_SUMMARY = re.compile(r"JS1:[A-Za-z0-9+/=]*[;,|\s]*")


@dataclass(frozen=True, slots=True)
class HostUse:
    """CPU and memory of a job of one node, by Slurm's accounting. ``cpu_s``: of all its CPUs (s);
    ``used_mib``: the most that a step held; None where Slurm does not measure it."""

    cpus: int
    cpu_s: float
    total_mib: float
    used_mib: float | None


@dataclass(frozen=True, slots=True)
class Accounted:
    """The newest run of a job as slurmdbd has it; ``comment``: its AdminComment."""

    host: HostUse
    end_s: float | None
    comment: str


def summary_of(run: Run, host: HostUse) -> dict[str, Any] | None:
    """The summary of an ended run. None for one on several nodes, or of which the activity or the
    memory of a GPU was not measured: readers take what is missing for 0."""
    if run.start_s is None or run.end_s is None or len(run.used or ()) != 1:
        return None
    use = (run.used or [])[0]
    total, used, busy = {}, {}, {}
    for place, gpu in enumerate(use.get("gpus", ())):
        memory, activity = run.share_mib or gpu.get("total_mib"), gpu.get("smact_mean")
        if not memory or activity is None:
            return None
        number = str(place)
        total[number], used[number] = memory * MIB, gpu["peak_mib"] * MIB
        busy[number] = round(100 * activity, 1)
    if not total or host.used_mib is None:
        return None
    node = {
        "cpus": host.cpus,
        "gpu_total_memory": total,
        "gpu_used_memory": used,
        "gpu_utilization": busy,
        "total_memory": round(host.total_mib * MIB),
        "total_time": round(host.cpu_s, 1),
        "used_memory": round(host.used_mib * MIB),
    }
    elapsed_s = round(run.end_s - run.start_s)
    return {"gpus": len(total), "nodes": {use["node"]: node}, "total_time": elapsed_s}


def comment_with_summary(comment: str, summary: dict[str, Any]) -> str | None:
    """A comment of the summary and the job's mark, in place of the mark alone or of an earlier
    summary. None where something else stands there: it would be lost."""
    mark = mark_in(comment)
    alone = "" if mark is None else comment_with(None, mark)
    if comment not in ("", alone) and not _SUMMARY.fullmatch(comment.removesuffix(alone)):
        return None
    return packed(summary | ({MARK: alone} if alone else {}))
