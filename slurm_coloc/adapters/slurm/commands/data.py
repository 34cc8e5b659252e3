# SPDX-License-Identifier: Apache-2.0
"""The JSON of squeue and scontrol on 24.11 and later, in a layout that we ask for by name.

``--json`` alone gives each release's newest layout, which may be one that nobody here has read.
core/slurm/releases.JSON_LAYOUTS has those whose recorded answers this one parser reads, and which
of them a release is asked for. A release without one, or a Slurm without its JSON plugins, is read
as text (parse.py). Into that file's names is translated here.

What is not read as JSON, and why (measured on 24.11 and 26.05, 1,000 pending jobs):

- the listing of many jobs: squeue's columns are 4.0 MB, 34 ms, 11 ms to parse; its JSON 7.7 to
  8.3 MB, 300 to 350 ms (nearly all of it the command's CPU), 40 ms to parse;
- partitions: v0.0.42 to v0.0.45 tell no PreemptMode, and asking for them asks slurmdbd, which may
  be away, for its TRES;
- ended jobs: `sacct --json` brings every step of every job; nothing else is worth its text.

One job is asked of `squeue --json`, never of `scontrol show job --json`: that one answers "no jobs"
with exit 0 for an unknown job and, after 38 s, also for a slurmctld that is away (24.11, 26.05).

Differences to the text: no width can cut a value (nodes, reasons, gres); a state and its flags are
a list (``["FAILED", "COMPLETING"]``); a number is ``{"set","infinite","number"}``; unset text is
""; pending tasks of an array are one record. 26.05 differs from 24.11 as its text does (``-/39``).
"""

import json
from collections.abc import Mapping
from typing import Any

from slurm_coloc.adapters.slurm.commands.parse import tasks_in
from slurm_coloc.errors import SlurmError

Item = Mapping[str, Any]


def parse(text: str, key: str) -> list[Item]:
    """The items under ``key``; raises SlurmError where this is no such answer."""
    try:
        answer = json.loads(text)
        found, errors = answer[key], answer.get("errors", [])
        assert isinstance(found, list)
    except (ValueError, LookupError, TypeError, AssertionError) as err:
        raise SlurmError(f"no JSON in the layout asked for: {err}", "slurm-layout") from err
    if errors:
        words = str(errors[0].get("description") or errors[0].get("error"))
        raise SlurmError(f"Slurm: {words}", "slurm-away")
    return found


def _number(value: Any) -> str:
    """A number, set or plain; "" for one that is not set."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else None
    return "" if value is None else str(int(value))


def job_values(job: Item) -> dict[str, str]:
    """A job under the names of squeue's columns. The record of an array's pending tasks stands for
    the first of them."""
    states = job["job_state"]
    code = job["exit_code"]
    array = _number(job["array_job_id"])
    task = _number(job["array_task_id"]) if array != "0" else ""
    return {
        "JobID": _number(job["job_id"]),
        "State": states[0],
        "Completing": "1" if "COMPLETING" in states else "",
        "RequeueHold": "1" if "REQUEUE_HOLD" in states else "",
        "RestartCnt": _number(job["restart_cnt"]),
        "UserID": _number(job["user_id"]),
        "exit_code": f"{_number(code['return_code']) or 0}:{_number(code['signal']['id']) or 0}",
        "PriorityLong": _number(job["priority"]),
        "tres-per-node": job["tres_per_node"],
        "tres-per-task": job["tres_per_task"],
        "admin_comment": job["admin_comment"],
        "Partition": job["partition"],
        "NodeList": job["nodes"],
        "SubmitTime": _time(job["submit_time"]),
        "StartTime": _time(job["start_time"]),
        "EndTime": _time(job["end_time"]),
        "Reason": job["state_description"] or job["state_reason"],
        "ArrayJobID": array,
        "ArrayTaskID": task or next(tasks_in(job["array_task_string"]), ""),
        "Account": job["account"],
        "QOS": job["qos"],
        "Dependency": job["dependency"],
        "BatchHost": job["batch_host"],
        "Requeue": str(int(job["requeue"])),
        "BatchFlag": str(int(job["batch_flag"])),
    }


def _time(value: Any) -> str:
    text = _number(value)
    return "" if text == "0" else text


def node_pairs(node: Item) -> dict[str, str]:
    """A node under the names of scontrol's text."""
    return {
        "NodeName": node["name"],
        "NodeAddr": node["address"],
        "NodeHostName": node["hostname"],
        "Gres": node["gres"],
        "GresUsed": node["gres_used"],
        "State": "+".join(node["state"]),
        "Partitions": ",".join(node["partitions"]),
        "ActiveFeatures": ",".join(node["active_features"]),
        "CPUTot": _number(node["cpus"]),
        "CPUEfctv": _number(node["effective_cpus"]),
        "CPUAlloc": _number(node["alloc_cpus"]),
        "RealMemory": _number(node["real_memory"]),
        "AllocMem": _number(node["alloc_memory"]),
        "Extra": node.get("extra", ""),
        "Weight": _number(node["weight"]),
        "Owner": node.get("owner", ""),
    }


def places(job: Item) -> list[tuple[str, str]]:
    """Each node of a running job with its gres in detail."""
    nodes = ((job.get("job_resources") or {}).get("nodes") or {}).get("allocation") or []
    return [
        (node["name"], gres) for node, gres in zip(nodes, job["gres_detail"] or [], strict=False)
    ]
