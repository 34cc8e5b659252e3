# SPDX-License-Identifier: Apache-2.0
"""The text of scontrol, squeue and sacct: what every release writes. data.py reads the JSON.

Text is cut into a mapping under Slurm's own names (squeue's columns, scontrol's keys); the
functions that end in ``_view``, and those of shape.py, build from such a mapping.

Differences between releases that are handled here and in use.py:

- 22.05 writes ``gres:gpu:1`` where 23.11 and later write ``gres/gpu:1``; core/slurm/gres reads
  both.
- ``scontrol update TresPerNode=gres/gpu:1`` is the spelling that all releases take
  (``Gres=gpu:1`` and ``gres:gpu:1`` fail on 22.05).
- ``exit_code`` of squeue is the raw wait status on 22.05 (768) and ``code:signal`` on 24.11 (3:0).
- ``GresUsed`` of ``scontrol show node -d`` tells shards per device on 24.11
  (``shard:a100:51(12/39,39/39)``); 22.05 tells the number of devices that have some
  (``shard:a100:2(IDX:0-1)``), so there the shards are summed over the node's jobs.
- 26.05 writes ``-/39`` for a device that is taken whole, where 24.11 has ``0/39``.
- 22.05 has no ``requeue_delay``: StartTime=now ends the wait after a requeue on every release.

Jobs are read with ``squeue -O`` in columns (columns.py), and no column is a name, a comment or a
command: a job called ``x JobState=FAILED`` cannot forge anything.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from slurm_coloc.adapters.slurm.commands.columns import Columns
from slurm_coloc.core.slurm.controller import Controller
from slurm_coloc.core.slurm.job import JobView, Terms

_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:/]*)=")
# UNKNOWN is a node's state for a moment after slurmctld started; 22.05 may refuse shards then.
UNUSABLE = ("DOWN", "DRAIN", "FAIL", "FUTURE", "UNKNOWN", "POWERING_DOWN")


def listed(text: str) -> tuple[str, ...]:
    """``a,b`` as (a, b); () for what is not set."""
    return tuple(name for name in text.split(",") if name not in ("", "(null)"))


JOB = Columns(
    "JobID:14,State:20,RestartCnt:8,UserID:14,exit_code:12,PriorityLong:14,tres-per-node:1030,"
    "admin_comment:1030,Partition:256,NodeList:256,SubmitTime:24,StartTime:24,EndTime:24,"
    "Reason:128,ArrayJobID:14,ArrayTaskID:64,Account:128,QOS:128,Dependency:512,BatchHost:128,"
    "Requeue:8,BatchFlag:8,tres-per-task:1030"
)
# The owner's own words come last: nothing stands behind them.
TERMS = Columns("Nice:16,TimeLimit:24,Reservation:256,Comment:1024")


def parse_pairs(line: str) -> dict[str, str]:
    """``Key=value`` pairs of a scontrol line; the first of a repeated key wins."""
    pairs: dict[str, str] = {}
    found = list(_KEY.finditer(line))
    for here, following in zip(found, [*found[1:], None], strict=False):
        end = following.start() if following else len(line)
        pairs.setdefault(here.group(1), line[here.end() : end].strip())
    return pairs


def parse_lines(text: str) -> list[dict[str, str]]:
    """The pairs of each line of ``scontrol show ... -o``."""
    return [parse_pairs(line) for line in text.split("\n") if line.strip()]


def seconds(text: str) -> float | None:
    """A time in Unix seconds; None where there is none."""
    # With SLURM_TIME_FORMAT=%s Slurm writes Unix seconds, which no clock change makes ambiguous.
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def number(text: str) -> int:
    """A decimal number; 0 for anything else."""
    return int(text) if text.isascii() and text.lstrip("-").isdigit() else 0


def limit_s(text: str) -> float | None:
    """``1-02:30:00``, ``1:00:00`` or ``30:00``, also with a fraction of the last second, in
    seconds; None for UNLIMITED and what is unset."""
    found = re.fullmatch(r"(?:(\d+)-)?((?:\d+:)*\d+(?:\.\d+)?)", text)
    if not found:
        return None
    total = 0.0
    for part in found[2].split(":"):
        total = total * 60 + float(part)
    return total + 86400 * int(found[1] or 0)


_MIB = {"B": 1 / 2**20, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def size_mib(text: str, unit: str = "M") -> float | None:
    """``1000M`` or ``1.50G`` in MiB; None where there is no number. ``unit``: of a bare number."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)", text)
    return float(found[1]) * _MIB[found[2] or unit] if found else None


def parse_exit(text: str) -> tuple[int, int]:
    """Exit code and signal from ``3:0`` (24.11) or the raw wait status ``768`` (22.05)."""
    code, sep, by = text.partition(":")
    if sep:
        return number(code), number(by)
    raw = number(text)
    return raw >> 8, raw & 0x7F


# squeue shows COMPLETING in place of the state that lies below; Slurm's reason tells which it is.
# A job that was requeued while it was COMPLETING waits in the queue already.
_BELOW_COMPLETING = {
    "NonZeroExitCode": "FAILED",
    "TimeLimit": "TIMEOUT",
    "NodeDown": "NODE_FAIL",
    "OutOfMemory": "OUT_OF_MEMORY",
    "job requeued in held state": "PENDING",
    "job_requeued_in_held_state": "PENDING",
    "JobHeldAdmin": "PENDING",
    "JobHeldUser": "PENDING",
    "BeginTime": "PENDING",
}
# A flag that squeue shows in place of the state below, as it does COMPLETING.
_HELD = {"REQUEUE_HOLD": "PENDING"}


def parse_reason(text: str) -> str:
    """Why a job waits or failed; "" where Slurm gives no reason."""
    return "" if text == "None" else text


def job_view(values: Mapping[str, str]) -> JobView:
    """A job from the names of JOB's columns; missing ones count as not set. Text has COMPLETING for
    a state; who knows what lies below gives that as State, and Completing beside it."""

    def value(name: str) -> str:
        return values.get(name, "")

    exit_code, ended_by = parse_exit(value("exit_code"))
    state, reason = value("State"), parse_reason(value("Reason"))
    below = _HELD.get(state, state)
    return JobView(
        job_id=number(value("JobID")),
        state=_BELOW_COMPLETING.get(reason, state) if state == "COMPLETING" else below,
        completing=state == "COMPLETING" or bool(value("Completing")),
        restarts=number(value("RestartCnt")),
        uid=number(values.get("UserID", "-1")),
        reason=reason,
        exit_code=exit_code,
        signal=ended_by,
        priority=number(value("PriorityLong")),
        tres_per_node=value("tres-per-node"),
        admin_comment=value("admin_comment"),
        partition=value("Partition"),
        nodes=value("NodeList"),
        submit_s=seconds(value("SubmitTime")),
        start_s=seconds(value("StartTime")),
        end_s=seconds(value("EndTime")),
        array_job_id=number(value("ArrayJobID")) or None,
        array_task=value("ArrayTaskID") or None,
        account=value("Account"),
        qos=value("QOS"),
        dependency=value("Dependency"),
        batch_host=value("BatchHost"),
        requeue=value("Requeue") == "1",
        batch=value("BatchFlag") == "1",
        requeue_hold=state == "REQUEUE_HOLD" or bool(value("RequeueHold")),
        tres_per_task=value("tres-per-task"),
    )


def parse_terms(line: str) -> Terms:
    """One line with the columns of TERMS; a limit that is no time is none."""
    values = TERMS.parse(line)
    limit = limit_s(values["TimeLimit"])
    return Terms(number(values["Nice"]), limit, values["Reservation"], values["Comment"])


def words(config: Mapping[str, str], key: str) -> frozenset[str]:
    """A comma-separated list of slurm.conf; () for ``none`` and what is not set."""
    found = re.split(r"[,\s]+", config.get(key, ""))
    return frozenset(word for word in found if word.lower() not in ("", "none", "(null)"))


def parse_ping(text: str) -> list[Controller]:
    """``Slurmctld(primary) at head is UP``, one line a controller."""
    found = re.findall(r"^Slurmctld\((\w+)\) at (\S+) is (\w+)", text, re.MULTILINE)
    return [Controller(host, state == "UP", role == "primary") for role, host, state in found]


def tasks_in(text: str) -> Iterator[str]:
    """Each of an array's tasks ``0,3-7:2%4``: 0, 3, 5, 7. (SLURM_BITSTR_LEN=0: nothing is cut.)"""
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text.partition("%")[0]):
        yield from map(str, range(int(first), int(last or first) + 1, int(step or 1)))


def parse_jobs(text: str) -> list[JobView]:
    """All lines with the columns of JOB."""
    return [job_view(values) for values in JOB.rows(text)]


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config``: one ``Key = value`` a line."""
    pairs: dict[str, str] = {}
    for line in text.split("\n"):
        key, sep, value = line.partition("=")
        if sep:
            pairs.setdefault(key.strip(), value.strip())
    return pairs
