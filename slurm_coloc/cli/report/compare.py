# SPDX-License-Identifier: Apache-2.0
"""`coloc report JOB,JOB --compare`: runs side by side, as a table, or as a page with their memory
and activity over time in one picture."""

from collections.abc import Sequence
from typing import Any

from slurm_coloc.cli import render
from slurm_coloc.cli.listing import Column
from slurm_coloc.cli.report import charts
from slurm_coloc.cli.report.markup import COLOURS, Child, element, figure, key, page, table
from slurm_coloc.cli.tries import ENDED

Answer = dict[str, Any]

#: pictures of a page: the series, its name, and what one of its units is
PICTURES = (("memory_mib", "GPU memory", " GiB", 1 / 1024), ("smact", "SM activity", " %", 100.0))


def _trained(answer: Answer, name: str) -> object:
    """What the submission said of the training."""
    return (answer["decision"].get("features") or {}).get(name)


def _state(answer: Answer) -> str:
    outcome, state = answer["run"]["outcome"], str(answer["run"]["state"])
    return str(ENDED.get(outcome, outcome)) if outcome else state.lower()


def _lasted(answer: Answer) -> str:
    start_s, end_s = answer["run"]["start_s"], answer["run"]["end_s"]
    return render.lasted(end_s - start_s) if end_s else render.ago(start_s)


def _share(answer: Answer) -> str:
    return render.gib(answer["reserved_mib"]) if answer["reserved_mib"] else "whole"


def _energy(answer: Answer) -> str | None:
    used = answer["use"]["energy_j"]
    return None if used is None else f"{used / 1000:.1f}"


def _slower(answer: Answer) -> str | None:
    """How many times slower than alone; ~ where that is the model's word."""
    if answer["slower"] is None:
        return None
    predicted = "~" if answer["slower_how"] == "predicted" else ""
    return f"{predicted}{answer['slower']:.2f}x"


COLUMNS = (
    Column("JOB", lambda one: render.job(one["run"]), right=True),
    Column("STATE", _state, least=9),
    Column("BATCH", lambda one: _trained(one, "batch_size"), right=True, rank=2),
    Column("OPTIMIZER", lambda one: _trained(one, "optimizer"), rank=4),
    Column("PRECISION", lambda one: _trained(one, "precision"), rank=5),
    Column("GPU", lambda one: render.gpu(one["run"]), least=8, rank=6),
    Column("SHARE", _share, right=True),
    Column("PEAK", lambda one: render.gib(one["run"]["peak_mib"]), right=True),
    Column("SM", lambda one: render.percent(one["use"]["smact"]), right=True),
    Column("KJ", _energy, right=True, rank=3),
    Column("NEIGHBOURS", lambda one: len(one["neighbours"]), right=True, rank=1),
    Column("SLOWER", _slower, right=True),
    Column("RAN", _lasted, right=True),
)


def models(found: Sequence[Answer]) -> str:
    """Whether these runs are of one model, in words; "" where they are."""
    kinds = {one["decision"]["fingerprint"] for one in found}
    if len(kinds) == 1 and None not in kinds:
        return ""
    return "These runs are not all of one model: what differs may be the model's doing."


def compare_page(found: Sequence[Answer]) -> str:
    """The page: the table, then each series of all runs in one picture."""
    names = [render.job(one["run"]) for one in found]
    rows = [[render.plain(column.of(one)) for column in COLUMNS] for one in found]
    heads = [column.name + (">" if column.right else "") for column in COLUMNS]
    note = models(found)
    return page(
        f"Jobs {', '.join(names)}",
        element("p", note, class_="note") if note else None,
        table(heads, rows),
        *_pictures(found, names),
    )


def _pictures(found: Sequence[Answer], names: Sequence[str]) -> list[Child]:
    parts: list[Child] = []
    for series, title, unit, factor in PICTURES:
        drawn, keys = [], []
        for number, (one, name) in enumerate(zip(found, names, strict=True)):
            values = (one["series"] or {}).get(series) or ()
            if sum(value is not None for value in values) < 2:
                continue
            kind = f"c{number % COLOURS}"
            scaled = [None if value is None else value * factor for value in values]
            drawn.append((scaled, float(one["series"]["step_s"]), kind))
            keys += key(kind, name)
        if drawn:
            longest = render.lasted(max(len(values) * step_s for values, step_s, _ in drawn))
            picture = charts.lines(drawn, ("0", longest), f"{title} over time", unit=unit)
            parts += [element("h2", title), figure(picture, "From each run's begin.", *keys)]
    return parts or [element("p", "None of these runs has figures over time.", class_="note")]
