# SPDX-License-Identifier: Apache-2.0
"""Parsers of what scontrol and squeue write: jobs, nodes, partitions, configuration.

Differences between releases that are handled here and in use.py:

- 22.05 writes ``gres:gpu:1`` where 23.11 and later write ``gres/gpu:1``; core/gres reads both.
- ``scontrol update TresPerNode=gres/gpu:1`` is the spelling that all releases take
  (``Gres=gpu:1`` and ``gres:gpu:1`` fail on 22.05).
- ``exit_code`` of squeue is the raw wait status on 22.05 (768) and ``code:signal`` on 24.11 (3:0).
- ``GresUsed`` of ``scontrol show node -d`` tells shards per device on 24.11
  (``shard:a100:51(12/39,39/39)``); 22.05 tells the number of devices that have some
  (``shard:a100:2(IDX:0-1)``), so there the shards are summed over the node's jobs.
- 22.05 has no ``requeue_delay``: StartTime=now ends the wait after a requeue on every release.

Jobs are read with ``squeue -O`` in columns of fixed width, and no column is one that a user
writes (name, comment, command): a job called ``x JobState=FAILED`` cannot forge anything.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from slurm_coloc.core.cluster import NodeShape, PartitionShape
from slurm_coloc.core.gres import count_of, parse_gres
from slurm_coloc.core.job import JobView
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
    ("ReasonList", 256),
    ("ArrayJobID", 14),
    ("ArrayTaskID", 64),
)
FORMAT = ",".join(f"{name}:{width}" for name, width in COLUMNS)

_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z0-9_:/]*)=")
UNUSABLE = ("DOWN", "DRAIN", "FAIL", "FUTURE", "UNKNOWN", "POWERING_DOWN")


def parse_pairs(line: str) -> dict[str, str]:
    """``Key=value`` pairs of a scontrol line; the first of a repeated key wins."""
    pairs: dict[str, str] = {}
    found = list(_KEY.finditer(line))
    for here, following in zip(found, [*found[1:], None], strict=True):
        end = following.start() if following else len(line)
        pairs.setdefault(here.group(1), line[here.end() : end].strip())
    return pairs


def _seconds(text: str) -> float | None:
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
        values[name] = "" if text in ("N/A", "(null)", "NONE") else text
        start += width
    return values


def parse_exit(text: str) -> tuple[int, int]:
    """Exit code and signal from ``3:0`` (24.11) or the raw wait status ``768`` (22.05)."""
    code, sep, by = text.partition(":")
    if sep:
        return number(code), number(by)
    raw = number(text)
    return raw >> 8, raw & 0x7F


def parse_reason(text: str) -> str:
    """``(Resources)`` of a waiting job as ``Resources``; "" where ReasonList names nodes."""
    return text[1:-1] if text.startswith("(") and text.endswith(")") else ""


def parse_job_line(line: str) -> JobView:
    """One line of ``squeue -O`` with COLUMNS; raises SlurmError on another layout."""
    values = parse_columns(line, COLUMNS)
    exit_code, ended_by = parse_exit(values["exit_code"])
    state = values["State"]
    return JobView(
        job_id=number(values["JobID"]),
        state=state,
        completing=state == "COMPLETING",
        restarts=number(values["RestartCnt"]),
        uid=number(values["UserID"]),
        reason=parse_reason(values["ReasonList"]),
        exit_code=exit_code,
        signal=ended_by,
        priority=number(values["PriorityLong"]),
        tres_per_node=values["tres-per-node"],
        admin_comment=values["admin_comment"],
        partition=values["Partition"],
        nodes=values["NodeList"],
        submit_s=_seconds(values["SubmitTime"]),
        start_s=_seconds(values["StartTime"]),
        end_s=_seconds(values["EndTime"]),
        array_job_id=number(values["ArrayJobID"]) or None,
        array_task=values["ArrayTaskID"] or None,
    )


def parse_node(line: str) -> NodeShape | None:
    """One line of ``scontrol show node -o``; None for a node without GPUs."""
    pairs = parse_pairs(line)
    gres = pairs.get("Gres", "")
    gpus = [item for item in parse_gres(gres) if item.name == "gpu"]
    if not gpus or not sum(item.count for item in gpus):
        return None
    types = {item.type for item in gpus}
    state = pairs.get("State", "").upper()
    return NodeShape(
        name=pairs.get("NodeName", ""),
        partitions=tuple(part for part in pairs.get("Partitions", "").split(",") if part),
        features=tuple(
            name
            for name in pairs.get("ActiveFeatures", "").split(",")
            if name not in ("", "(null)")
        ),
        gpu_type=types.pop() if len(types) == 1 else None,
        gpus=sum(item.count for item in gpus),
        shards=count_of(gres, "shard") or 0,
        usable=not any(word in state for word in UNUSABLE),
        cpus=number(pairs.get("CPUTot", "")),
    )


def parse_partition(line: str, site: str = "") -> PartitionShape:
    """One line of ``scontrol show partition -o``; ``site``: slurm.conf's own JobDefaults, which
    hold where the partition has none."""
    pairs = parse_pairs(line)
    items = [*site.split(","), *pairs.get("JobDefaults", "").split(",")]
    defaults = dict(item.split("=", 1) for item in items if "=" in item)
    return PartitionShape(
        name=pairs.get("PartitionName", ""),
        default=pairs.get("Default", "NO") == "YES",
        def_cpu_per_gpu=number(defaults.get("DefCpuPerGPU", "")) or None,
        def_mem_per_gpu_mib=number(defaults.get("DefMemPerGPU", "")) or None,
        max_time_min=_minutes(pairs.get("MaxTime", "")),
    )


def _minutes(text: str) -> int | None:
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", text)
    if not found:
        return None
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + minutes


def parse_release(text: str) -> tuple[int, ...]:
    """``24.11.5`` as (24, 11, 5)."""
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def parse_jobs(text: str) -> list[JobView]:
    """All lines of ``squeue -O`` with COLUMNS."""
    return [parse_job_line(line) for line in text.split("\n") if line.strip()]


def parse_config(text: str) -> dict[str, str]:
    """``scontrol show config``: one ``Key = value`` a line."""
    pairs: dict[str, str] = {}
    for line in text.splitlines():
        key, sep, value = line.partition("=")
        if sep:
            pairs.setdefault(key.strip(), value.strip())
    return pairs
