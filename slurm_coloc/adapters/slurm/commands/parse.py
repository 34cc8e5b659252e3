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

Jobs are read with ``squeue -O`` in columns of fixed width, and no column is one that a user
writes (name, comment, command): a job called ``x JobState=FAILED`` cannot forge anything.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from slurm_coloc.core.slurm.cluster import Controller
from slurm_coloc.core.slurm.job import EndedJob, JobView, Terms
from slurm_coloc.errors import SlurmError

# Column and width. A value that fills its column may be cut, so widths are generous.
COLUMNS: tuple[tuple[str, int], ...] = (
    ("JobID", 14),
    ("State", 20),
    ("RestartCnt", 8),
    ("UserID", 14),
    ("exit_code", 12),
    ("PriorityLong", 14),
    ("tres-per-node", 1030),
    ("admin_comment", 1030),
    ("Partition", 256),
    ("NodeList", 256),
    ("SubmitTime", 24),
    ("StartTime", 24),
    ("EndTime", 24),
    ("Reason", 128),
    ("ArrayJobID", 14),
    ("ArrayTaskID", 64),
    ("Account", 128),
    ("QOS", 128),
    ("Dependency", 512),
    ("BatchHost", 128),
    ("Requeue", 8),
    ("BatchFlag", 8),
    ("tres-per-task", 1030),
)
FORMAT = ",".join(f"{name}:{width}" for name, width in COLUMNS)

# Jobs of everybody: few columns. A dependency that fills its column was cut and is left alone.
VAIN_COLUMNS: tuple[tuple[str, int], ...] = (
    ("JobID", 14),
    ("ArrayJobID", 14),
    ("ArrayTaskID", 64),
    ("Reason", 40),
    ("Dependency", 1024),
)
VAIN_FORMAT = ",".join(f"{name}:{width}" for name, width in VAIN_COLUMNS)

# Jobs of everybody that wait: whom a recovered job would go ahead of.
LINE_COLUMNS: tuple[tuple[str, int], ...] = (
    ("JobID", 14),
    ("UserID", 14),
    ("PriorityLong", 14),
    ("QOS", 128),
    ("Partition", 256),
)
LINE_FORMAT = ",".join(f"{name}:{width}" for name, width in LINE_COLUMNS)

_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:/]*)=")
UNSET = ("N/A", "n/a", "(null)", "NONE")
# UNKNOWN is a node's state for a moment after slurmctld started; 22.05 may refuse shards then.
UNUSABLE = ("DOWN", "DRAIN", "FAIL", "FUTURE", "UNKNOWN", "POWERING_DOWN")


def parse_pairs(line: str) -> dict[str, str]:
    """``Key=value`` pairs of a scontrol line; the first of a repeated key wins."""
    pairs: dict[str, str] = {}
    found = list(_KEY.finditer(line))
    for here, following in zip(found, [*found[1:], None], strict=True):
        end = following.start() if following else len(line)
        pairs.setdefault(here.group(1), line[here.end() : end].strip())
    return pairs


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


def parse_columns(line: str, columns: Sequence[tuple[str, int]]) -> dict[str, str]:
    """One line of ``squeue -O``; "" for what is not set. Raises SlurmError on another layout."""
    if len(line) < sum(width for _, width in columns) - columns[-1][1]:
        raise SlurmError(f"squeue: a line of {len(line)} characters is too short for its columns")
    values: dict[str, str] = {}
    start = 0
    for name, width in columns:
        text = line[start : start + width].strip()
        values[name] = "" if text in UNSET else text
        start += width
    return values


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


def parse_reason(text: str) -> str:
    """Why a job waits or failed; "" where Slurm gives no reason."""
    return "" if text == "None" else text


def parse_job_line(line: str) -> JobView:
    """One line of ``squeue -O`` with COLUMNS; raises SlurmError on another layout."""
    return job_view(parse_columns(line, COLUMNS))


def job_view(values: Mapping[str, str]) -> JobView:
    """A job from the names of COLUMNS; "" for what is not set. Text has COMPLETING for a state; who
    knows what lies below gives that as State, and Completing beside it."""
    exit_code, ended_by = parse_exit(values["exit_code"])
    state, reason = values["State"], parse_reason(values["Reason"])
    return JobView(
        job_id=number(values["JobID"]),
        state=_BELOW_COMPLETING.get(reason, state) if state == "COMPLETING" else state,
        completing=state == "COMPLETING" or bool(values.get("Completing")),
        restarts=number(values["RestartCnt"]),
        uid=number(values["UserID"]),
        reason=reason,
        exit_code=exit_code,
        signal=ended_by,
        priority=number(values["PriorityLong"]),
        tres_per_node=values["tres-per-node"],
        admin_comment=values["admin_comment"],
        partition=values["Partition"],
        nodes=values["NodeList"],
        submit_s=seconds(values["SubmitTime"]),
        start_s=seconds(values["StartTime"]),
        end_s=seconds(values["EndTime"]),
        array_job_id=number(values["ArrayJobID"]) or None,
        array_task=values["ArrayTaskID"] or None,
        account=values["Account"],
        qos=values["QOS"],
        dependency=values["Dependency"],
        batch_host=values["BatchHost"],
        requeue=values["Requeue"] == "1",
        batch=values["BatchFlag"] == "1",
        tres_per_task=values["tres-per-task"],
    )


TERMS_COLUMNS: tuple[tuple[str, int], ...] = (
    ("Nice", 16),
    ("TimeLimit", 24),
    ("Reservation", 256),
    # The owner's own words: nothing stands behind them.
    ("Comment", 1024),
)
TERMS_FORMAT = ",".join(f"{name}:{width}" for name, width in TERMS_COLUMNS)


def parse_terms(line: str) -> Terms:
    """One line of ``squeue -O`` with TERMS_COLUMNS; a limit that is no time is none."""
    values = parse_columns(line, TERMS_COLUMNS)
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", values["TimeLimit"])
    days, hours, minutes, seconds = map(int, found.groups("0")) if found else (0,) * 4
    limit_s = days * 86400.0 + hours * 3600 + minutes * 60 + seconds if found else None
    nice = int(values["Nice"]) if values["Nice"].lstrip("-").isdigit() else 0
    return Terms(nice, limit_s, values["Reservation"], values["Comment"])


def parse_release(text: str) -> tuple[int, ...]:
    """``24.11.5`` as (24, 11, 5)."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def words(config: Mapping[str, str], key: str) -> frozenset[str]:
    """A comma-separated list of slurm.conf; () for ``none`` and what is not set."""
    found = re.split(r"[,\s]+", config.get(key, ""))
    return frozenset(word for word in found if word.lower() not in ("", "none", "(null)"))


def parse_ping(text: str) -> list[Controller]:
    """``Slurmctld(primary) at head is UP``, one line a controller."""
    found = re.findall(r"^Slurmctld\((\w+)\) at (\S+) is (\w+)", text, re.MULTILINE)
    return [Controller(host, state == "UP", role == "primary") for role, host, state in found]


# No column that a user writes; the unit separator stands in none of these.
SACCT_COLUMNS = (
    "JobIDRaw", "JobID", "State", "Restarts", "UID", "Account", "Partition", "QOS", "NodeList",
    "AllocTRES", "AdminComment", "ExitCode", "Submit", "Start", "End",
)  # fmt: skip
SACCT_DELIMITER = "\x1f"


def parse_ended(line: str) -> EndedJob:
    """One line of ``sacct -P`` with SACCT_COLUMNS; raises SlurmError on another layout."""
    parts = line.split(SACCT_DELIMITER)
    if len(parts) != len(SACCT_COLUMNS):
        raise SlurmError(f"sacct: a line of {len(parts)} columns, not {len(SACCT_COLUMNS)}")
    values = dict(zip(SACCT_COLUMNS, parts, strict=True))
    exit_code, ended_by = parse_exit(values["ExitCode"])
    array, _, task = values["JobID"].partition("_")
    return EndedJob(
        job_id=number(values["JobIDRaw"]),
        state=values["State"].split(" ")[0],
        array_job_id=number(array) if task else None,
        array_task=task or None,
        restarts=number(values["Restarts"]),
        uid=number(values["UID"]),
        account=values["Account"],
        partition=values["Partition"],
        qos=values["QOS"],
        nodes="" if values["NodeList"] == "None assigned" else values["NodeList"],
        tres=values["AllocTRES"],
        admin_comment=values["AdminComment"],
        exit_code=exit_code,
        signal=ended_by,
        submit_s=seconds(values["Submit"]),
        start_s=seconds(values["Start"]),
        end_s=seconds(values["End"]),
    )


def tasks_in(text: str) -> Iterator[str]:
    """Each of an array's tasks ``0,3-7:2%4``: 0, 3, 5, 7. (SLURM_BITSTR_LEN=0: nothing is cut.)"""
    for first, last, step in re.findall(r"(\d+)(?:-(\d+)(?::(\d+))?)?", text.partition("%")[0]):
        yield from map(str, range(int(first), int(last or first) + 1, int(step or 1)))


def parse_jobs(text: str) -> list[JobView]:
    """All lines of ``squeue -O`` with COLUMNS."""
    return [parse_job_line(line) for line in text.split("\n") if line.strip()]


def parse_vain(text: str) -> list[JobView]:
    """Lines of ``squeue -O`` with VAIN_COLUMNS: the jobs that wait for what can never be."""
    found: list[JobView] = []
    for line in text.split("\n"):
        if "DependencyNeverSatisfied" not in line:
            continue
        values = parse_columns(line, VAIN_COLUMNS)
        if len(values["Dependency"]) < VAIN_COLUMNS[-1][1]:
            found.append(
                JobView(
                    job_id=number(values["JobID"]),
                    state="PENDING",
                    reason=values["Reason"],
                    dependency=values["Dependency"],
                    array_job_id=number(values["ArrayJobID"]) or None,
                    array_task=values["ArrayTaskID"] or None,
                )
            )
    return found


def parse_line(text: str) -> list[JobView]:
    """Lines of ``squeue -O`` with LINE_COLUMNS: the jobs that wait and where they stand."""
    rows = (parse_columns(line, LINE_COLUMNS) for line in text.split("\n") if line.strip())
    return [
        JobView(
            job_id=number(values["JobID"]),
            state="PENDING",
            uid=number(values["UserID"]),
            priority=number(values["PriorityLong"]),
            qos=values["QOS"],
            partition=values["Partition"],
        )
        for values in rows
    ]


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config``: one ``Key = value`` a line."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, sep, value = line.partition("=")
        if sep:
            pairs.setdefault(key.strip(), value.strip())
    return pairs
