# SPDX-License-Identifier: Apache-2.0
"""The whole queue for steering: columns of ``squeue -O``."""

import re

from slurm_coloc.adapters.slurm.commands.parse import number, parse_columns, seconds, tasks_in
from slurm_coloc.adapters.slurm.commands.use import parse_mib
from slurm_coloc.core.place.queued_jobs import Queued

# Features and node lists are the users' own words: they stand in columns like all others, and one
# that fills its column is left alone by who reads it (CUT).
COLUMNS: tuple[tuple[str, int], ...] = (
    ("JobID", 14),
    ("State", 20),
    ("PriorityLong", 14),
    ("UserID", 14),
    ("Reason", 64),
    ("RestartCnt", 8),
    ("Partition", 256),
    ("tres-per-node", 1030),
    ("tres-per-task", 512),
    ("tres-per-job", 512),
    ("admin_comment", 1030),
    ("NodeList", 256),
    ("ReqNodes", 256),
    ("ExcNodes", 256),
    ("Feature", 256),
    ("Reservation", 128),
    ("TimeLimit", 24),
    ("StartTime", 24),
    ("EndTime", 24),
    ("NumNodes", 12),
    ("NumTasks", 12),
    ("NumCPUs", 12),
    ("MinMemory", 16),
    ("ArrayJobID", 14),
    ("ArrayTaskID", 64),
    ("SubmitTime", 24),
    ("QOS", 128),
)
FORMAT = ",".join(f"{name}:{width}" for name, width in COLUMNS)
STATES = "--states=PENDING,RUNNING,SUSPENDED,CONFIGURING,STOPPED"
CUT = 255


def parse_queue(text: str) -> list[Queued]:
    """Jobs of lines with COLUMNS, in no order (core/place/queue_order)."""
    return [_queued(line) for line in text.split("\n") if line.strip()]


def _queued(line: str) -> Queued:
    values = parse_columns(line, COLUMNS)
    task, array = values["ArrayTaskID"], number(values["ArrayJobID"])
    first = next(tasks_in(task), "") if task else ""
    memory = values["MinMemory"]
    return Queued(
        job_id=number(values["JobID"]),
        handle=f"{array}_{first}" if array and first else values["JobID"],
        state=values["State"],
        priority=number(values["PriorityLong"]),
        uid=number(values["UserID"]),
        reason="" if values["Reason"] == "None" else values["Reason"],
        restarts=number(values["RestartCnt"]),
        partition=values["Partition"],
        tres_per_node=values["tres-per-node"],
        tres_per_task=values["tres-per-task"],
        tres_per_job=values["tres-per-job"],
        admin_comment=values["admin_comment"],
        nodes=values["NodeList"],
        req_nodes=values["ReqNodes"],
        exc_nodes=values["ExcNodes"],
        features=values["Feature"],
        reservation=values["Reservation"],
        limit_s=limit_s(values["TimeLimit"]),
        start_s=seconds(values["StartTime"]),
        end_s=seconds(values["EndTime"]),
        num_nodes=number(values["NumNodes"].split("-")[0]) or 1,
        num_tasks=number(values["NumTasks"]) or 1,
        cpus=number(values["NumCPUs"].split("-")[0]) or 1,
        memory_mib=parse_mib(memory.removesuffix("c").removesuffix("n")),
        memory_per_cpu=memory.endswith("c"),
        array=bool(array and task),
        array_id=array if task else 0,
        submit_s=seconds(values["SubmitTime"]),
        qos="" if values["QOS"] in ("(null)", "N/A") else values["QOS"],
        cut=any(len(values[name]) >= CUT for name in ("Feature", "ReqNodes", "ExcNodes")),
    )


def limit_s(text: str) -> float | None:
    """``1-02:30:00``, ``1:00:00`` or ``30:00`` in seconds; None for UNLIMITED and what is unset."""
    found = re.fullmatch(r"(?:(\d+)-)?((?:\d+:)*\d+)", text)
    if not found:
        return None
    total = 0
    for part in found[2].split(":"):
        total = total * 60 + int(part)
    return float(total + 86400 * int(found[1] or 0))
