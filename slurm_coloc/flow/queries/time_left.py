# SPDX-License-Identifier: Apache-2.0
"""How long the runs of an answer still take: by their own log where its node reads that, else by
earlier runs of the same model with the same options. Nothing of it is told of another user's run:
it follows from his log and his models."""

import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from slurm_coloc.core.time.progress.past import left_after

Answer = dict[str, Any]

FIELDS = ("left_s", "low_s", "high_s")


def may_know(row: Answer, uid: int | None) -> bool:
    """Whether ``uid`` is told of this run's time."""
    return row["state"] == "RUNNING" and uid in (None, row["uid"])


def by_past(rows: list[Answer], uid: int | None, lasted_s: Callable[[str], list[float]]) -> None:
    """Set ``time_left`` of the rows that ``uid`` is told of (None: all), from earlier runs; null
    where there are none. ``lasted_s``: run times (s) of the completed runs of a decision's
    model."""
    known = cache(lasted_s)
    now_s = time.time()
    for row in rows:
        row["time_left"] = None
        if row["start_s"] is None or not may_know(row, uid):
            continue
        lasted = known(row["decision"])
        if found := left_after(lasted, now_s - row["start_s"]):
            left = dict(zip(FIELDS, found, strict=True))
            unknown = {"done": None, "epoch": None, "epochs": None}
            row["time_left"] = {"by": "earlier runs", "runs": len(lasted), **left, **unknown}


def by_log(row: Answer, told: Mapping[str, Any] | None) -> None:
    """Set ``time_left`` to what the run's log says, where it says that. ``told``: of its node's
    last heartbeat."""
    if told is None:
        return
    past, passed_s = row["time_left"], max(0.0, time.time() - told["at_s"])
    found = {"by": "log", "runs": 0, **{name: told[name] for name in ("done", "epoch", "epochs")}}
    if told["left_s"] is None and past is not None:
        row["time_left"] = {**past, **{name: found[name] for name in ("done", "epoch", "epochs")}}
        return
    for name in FIELDS:
        found[name] = None if told[name] is None else max(0.0, told[name] - passed_s)
    row["time_left"] = found
