# SPDX-License-Identifier: Apache-2.0
"""Jobs of everybody, in few columns of ``squeue``: the whole queue for steering, whom a recovered
job would go ahead of, and who waits in vain."""

from collections.abc import Mapping

from slurm_coloc.adapters.slurm.commands.columns import Columns
from slurm_coloc.adapters.slurm.commands.parse import (
    job_view,
    limit_s,
    number,
    parse_reason,
    seconds,
    tasks_in,
)
from slurm_coloc.adapters.slurm.commands.use import parse_mib
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.job import JobView

# Features and node lists are the users' own words: they stand in columns of a width, and one
# that fills its column is left alone by who reads it (CUT). The others have none: padded, 10,000
# jobs are 50 MB of text.
QUEUE = Columns(
    "JobID:0,State:0,PriorityLong:0,UserID:0,Reason:0,RestartCnt:0,Partition:0,"
    "tres-per-node:0,tres-per-task:0,tres-per-job:0,admin_comment:0,NodeList:0,"
    "Reservation:0,TimeLimit:0,StartTime:0,EndTime:0,"
    "NumNodes:0,NumTasks:0,NumCPUs:0,MinMemory:0,ArrayJobID:0,ArrayTaskID:0,SubmitTime:0,"
    "QOS:0,Account:0,ReqNodes:256,Feature:256,ExcNodes:256"
)
# A dependency that fills its column was cut, and its job is left alone.
VAIN = Columns("JobID:14,ArrayJobID:14,ArrayTaskID:64,Reason:40,Dependency:1024")
WAITING = Columns("JobID:14,UserID:14,PriorityLong:14,QOS:128,Partition:256")
STATES = "--states=PENDING,RUNNING,SUSPENDED,CONFIGURING,STOPPED"
CUT = 255


def parse_queue(text: str) -> list[Queued]:
    """Jobs of lines with the columns of QUEUE, in no order (core/place/queue_order)."""
    return [_queued(values) for values in QUEUE.rows(text)]


def _queued(values: Mapping[str, str]) -> Queued:
    task, array = values["ArrayTaskID"], number(values["ArrayJobID"])
    first = next(tasks_in(task), "") if task else ""
    memory = values["MinMemory"]
    return Queued(
        job_id=number(values["JobID"]),
        handle=f"{array}_{first}" if array and first else values["JobID"],
        state=values["State"],
        priority=number(values["PriorityLong"]),
        uid=number(values["UserID"]),
        reason=parse_reason(values["Reason"]),
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
        qos=values["QOS"],
        account=values["Account"],
        cut=any(len(values[name]) >= CUT for name in ("Feature", "ReqNodes", "ExcNodes")),
    )


def parse_vain(text: str) -> list[JobView]:
    """Lines with the columns of VAIN: the jobs whose dependency can no longer be met."""
    lines = (line for line in text.split("\n") if "DependencyNeverSatisfied" in line)
    return [
        job_view({"State": "PENDING", **values})
        for values in map(VAIN.parse, lines)
        if len(values["Dependency"]) < VAIN.widths["Dependency"]
    ]


def parse_waiting(text: str) -> list[JobView]:
    """Lines with the columns of WAITING: the jobs that wait and where they stand."""
    return [job_view({"State": "PENDING", **values}) for values in WAITING.rows(text)]
