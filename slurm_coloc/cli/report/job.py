# SPDX-License-Identifier: Apache-2.0
"""The page of `coloc report JOB --html`: one run's memory and activity over time, its neighbours
and what happened."""

from collections.abc import Iterable
from typing import Any

import slurm_coloc.cli.report.charts as charts
from slurm_coloc.cli import render
from slurm_coloc.cli.report.markup import Child, element, figure, key, page, table


def job_page(answer: dict[str, Any], lines: Iterable[tuple[str, object]]) -> str:
    """``answer``: colocd's; ``lines``: what `coloc report` prints of it."""
    run = answer["run"]
    return page(
        f"Job {render.job(run)}",
        table(("", ""), ((name, render.plain(value)) for name, value in lines)),
        *_over_time(answer),
        *_neighbours(answer["neighbours"]),
        *_events(answer["events"]),
    )


def _over_time(answer: dict[str, Any]) -> list[Child]:
    series = answer["series"]
    held = [None if mib is None else mib / 1024 for mib in (series or {}).get("memory_mib", ())]
    if len(held) < 2:
        note = "No figures over time: it still runs, it was short, or no agent measured it."
        return [element("p", note, class_="note")]
    ends = ("0", render.lasted(series["step_s"] * len(held)))
    reserved = answer["reserved_mib"] and answer["reserved_mib"] / 1024
    memory = charts.line(held, "held", ends, "GPU memory over time", reserved, unit=" GiB")
    bound = key("bad", "reserved") if reserved else []
    parts: list[Child] = [
        element("h2", "GPU memory"),
        figure(memory, "Held by its processes, GiB.", *bound),
    ]
    smact = series["smact"]
    if any(value is not None for value in smact):
        percent = [None if value is None else 100 * value for value in smact]
        active = charts.line(percent, "active", ends, "SM activity over time", top=100.0, unit=" %")
        divided = answer["use"]["smact_how"] == "split"
        note = " Beside other jobs it is divided, not measured." if divided else ""
        parts += [element("h2", "SM activity"), figure(active, f"Its part of the GPU's.{note}")]
    return parts


def _neighbours(found: list[dict[str, Any]]) -> list[Child]:
    if not found:
        return []
    rows = [
        (
            render.job(one) if one["job_id"] else "another user's",
            render.NONE if one["uid"] is None else render.user_name(one["uid"]),
            render.moment(one["start_s"]),
            "still there" if one["end_s"] is None else render.moment(one["end_s"]),
            render.percent(one["smact"]),
        )
        for one in found
    ]
    heads = ("JOB", "USER", "FROM", "TO", "ACTIVITY ALONE>")
    return [element("h2", "Jobs on its GPU"), table(heads, rows)]


def _events(events: list[dict[str, Any]]) -> list[Child]:
    if not events:
        return []
    rows = [(render.moment(one["at_s"]), one["kind"], one["text"]) for one in events]
    return [element("h2", "What its node noted"), table(("WHEN", "WHAT", ""), rows)]
