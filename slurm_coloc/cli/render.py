# SPDX-License-Identifier: Apache-2.0
"""Tables and figures for people. Everything from outside is stripped of control characters: a
line of a job's log must not steer the terminal that shows it."""

import json
import pwd
import re
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_coloc.core.gpu.mig import slice_mib, slice_of
from slurm_coloc.core.slurm.gres import count_of, parse_gres

SCHEMA = 1
WIDE = 200  # columns where stdout is no terminal: nothing is cut for whoever greps
NONE = "-"

Row = dict[str, Any]

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def console() -> Console:
    """Stdout; wide and without colours where it is no terminal."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=WIDE, highlight=False)


def show(*parts: RenderableType) -> None:
    """Print tables or text; without a terminal no line ends in blanks."""
    out = console()
    if out.is_terminal:
        out.print(*parts, sep="\n")
        return
    with out.capture() as caught:
        out.print(*parts, sep="\n")
    print("\n".join(line.rstrip() for line in caught.get().splitlines()))


def show_finding(head: Text, name: str, found: str, todo: str) -> None:
    """What was found, below it what to do. ``head``: the state, as wide as its column."""
    line = head.copy().append(name, style="bold").append(plain(found), style="default")
    console().print(line, soft_wrap=True)
    if todo:
        console().print(f"{'':<{len(head) - 1}} -> {plain(todo)}", soft_wrap=True, markup=False)


def print_json(body: dict[str, Any]) -> None:
    """``body`` with the schema's number, on stdout."""
    print(json.dumps({"schema": SCHEMA, **body}))


def plain(value: object) -> str:
    """Text without control characters; a dash for nothing."""
    return NONE if value is None or value == "" else _CONTROL.sub("?", str(value))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table; columns whose name ends in > are aligned to the right. Where the terminal is narrow
    a name of several words takes several lines, so that no figure is cut."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for name in columns:
        right = name.endswith(">")
        made.add_column(
            name.rstrip(">"),
            justify="right" if right else "left",
            vertical="bottom",
            no_wrap=" " not in name,
        )
    for row in rows:
        made.add_row(*(Text(plain(value)) for value in row))
    return made


def facts(pairs: Iterable[tuple[str, object]]) -> Table:
    """Names and their values, the values wrapped."""
    made = Table(box=None, show_header=False, pad_edge=False)
    made.add_column(no_wrap=True, style="bold")
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, Text(plain(value)))
    return made


@cache
def user_name(uid: int) -> str:
    """The user's name; the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def gib(mib: int | None) -> str:
    """MiB as GiB with one decimal."""
    return NONE if mib is None else f"{mib / 1024:.1f}"


def percent(ratio: float | None) -> str:
    """A ratio in whole percent."""
    return NONE if ratio is None else f"{ratio:.0%}"


def span(seconds: float) -> str:
    """12s, 3m, 4h10m, 1d07h, 12d."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left}s"
    if left < 3600:
        return f"{left // 60}m"
    if left < 86400:
        return f"{left // 3600}h{left % 3600 // 60:02}m"
    days = left // 86400
    return f"{days}d{left % 86400 // 3600:02}h" if days < 10 else f"{days}d"


def lasted(seconds: float) -> str:
    """As ``span``, with seconds below an hour: two runs of a minute or two are compared by them."""
    left = max(0, int(seconds))
    return f"{left // 60}m{left % 60:02}s" if 60 <= left < 3600 else span(seconds)


def hours(value: float) -> str:
    """Hours, where a whole one is much with a decimal."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def ago(at_s: float | None) -> str:
    """How long ago a moment was."""
    return NONE if at_s is None else span(time.time() - at_s)


def left(row: dict[str, Any]) -> str | None:
    """The time that a run still takes, where it is known."""
    told = row.get("time_left")
    return None if not told or told["left_s"] is None else span(told["left_s"])


def moment(at_s: float) -> str:
    """A moment as local date and time."""
    return datetime.fromtimestamp(at_s).strftime("%Y-%m-%d %H:%M:%S")


def share(row: dict[str, Any]) -> str:
    """The part of a GPU that a run has: ``12.0 of 39.0 GiB``, a MIG device, or a whole one."""
    shards, per_gpu = int(row["shards"] or 0), int(row["shards_per_gpu"] or 0)
    tres = row.get("tres")
    kinds = [one.type for one in parse_gres(tres or "") if one.name == "gpu" and slice_of(one.type)]
    if kinds:
        mib = row["shard_mib"] if row["action"] == "collocate" else slice_mib(kinds[0] or "")
        return f"MIG {kinds[0]}, {gib(mib)} GiB"
    if tres and count_of(tres, "shard") is not None:
        shards = count_of(tres, "shard") or 0
    elif tres or row["action"] != "collocate":
        shards = 0
    if not per_gpu or not shards or shards >= per_gpu:  # on 22.05 a whole GPU is all its shards
        return "as submitted" if row["action"] == "asis" else "whole GPU"
    return f"{gib(shards * row['shard_mib'])} of {gib(per_gpu * row['shard_mib'])} GiB"


def job(row: dict[str, Any]) -> str:
    """The job's name: an array's task as squeue shows it, 9_2."""
    task = row.get("array_task")
    return f"{row['array_job_id']}_{task}" if task is not None else str(row["job_id"])


def gpu(row: dict[str, Any]) -> str:
    """Node and GPU, ``g1:0``, by NVML's numbers; where the node does not tell them, UUIDs shortened
    to their first part, as nvidia-smi users know them."""
    if numbers := row.get("gpus"):
        return f"{row['node']}:{','.join(map(str, numbers))}"
    uuids = row.get("gpu_uuids") or []
    short = ",".join("-".join(str(uuid).split("-")[:2]) for uuid in uuids)
    return f"{row['node']}: {short}" if short else plain(row.get("node"))
