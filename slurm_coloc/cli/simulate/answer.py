# SPDX-License-Identifier: Apache-2.0
"""Runs what `coloc simulate` was asked for and prints it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from slurm_coloc.cli import render
from slurm_coloc.cli.simulate.request import EXCLUSIVE, Request
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.outcome import BY_SIZE
from slurm_coloc.sim.page import text as pagetext
from slurm_coloc.sim.page.figures import Page, page
from slurm_coloc.sim.page.text import text_of
from slurm_coloc.sim.past import Past, counted
from slurm_coloc.sim.plot.canvas import check_path, save
from slurm_coloc.sim.plot.compare import bars, before_after
from slurm_coloc.sim.plot.run import draw
from slurm_coloc.sim.policies import policy as policy_named
from slurm_coloc.sim.simulate import play, simulate

Figures = dict[str, Any]


def answer(request: Request, as_json: bool, plot: Path | None, markdown: Path | None) -> None:
    """Simulate and print. A picture's path is tried before anything long is."""
    if plot is not None:
        check_path(plot)
    if request.world.past is None or request.compares:
        if markdown is not None:
            raise UsageFault(
                "--markdown needs --sacct, --observed, --philly or --helios, and one policy"
            )
        _compare(request, as_json, plot)
    else:
        _page(request, request.world.past, as_json, plot, markdown)


def _compare(request: Request, as_json: bool, plot: Path | None) -> None:
    """One policy or several, against exclusive and the bound."""
    wanted = list(request.policies)
    names = [policy.name for policy in wanted]
    alone = as_json and not request.compares
    if not alone and EXCLUSIVE not in names:
        wanted.insert(0, policy_named(EXCLUSIVE))
    found = _simulated(request, wanted)
    if plot is not None:
        _draw(request, found, names, plot)
    if as_json:
        print(json.dumps(_json(request, found, names)))
    else:
        _show(request, found, names)


def _simulated(request: Request, wanted: Sequence[Policy]) -> dict[str, Figures]:
    with progress(len(wanted) * request.runs) as step:
        found = {}
        for policy in wanted:
            step(policy.name, 0)
            found[policy.name] = simulate(request.experiment(policy), partial(step, policy.name))
    return found


@contextmanager
def progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar on stderr, where that is a terminal. A step is (what is done now, 0 when it begins and
    more when a part of it is done). ``total``: parts; 0: not known."""
    count = MofNCompleteColumn() if total else TextColumn("")
    columns = (TextColumn("{task.description}"), BarColumn(), count)
    talk = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=talk, transient=True, disable=not talk.is_terminal
    ) as bar:
        task = bar.add_task("simulating", total=total or None)

        def step(what: str, done: int) -> None:
            bar.update(task, description=what, advance=min(done, 1))

        yield step


def _draw(request: Request, found: Mapping[str, Figures], names: Sequence[str], path: Path) -> None:
    """Of one policy its run, the first of several; with a comparison its bars, the run of the
    first policy beside them in a file of its own."""
    experiment = request.experiment(request.policies[0])
    outcome, _ = play(replace(experiment, setting=replace(experiment.setting, record=True)))
    title = f"{names[0]}: {_jobs(request)} on {experiment.machine.text}"
    drawn = draw(outcome, experiment.machine, title)
    if not request.compares:
        save(drawn, path)
        return
    spread = {name: found[name]["spread"] for name in found} if request.runs > 1 else None
    title = f"{_jobs(request)} on {request.world.machine.text}"
    bound_s = found[names[0]]["bound_s"]
    save(bars(found, bound_s, f"{title}, {_runs(request)}", spread), path)
    save(drawn, path.with_stem(f"{path.stem}-{names[0]}"))


def _page(
    request: Request, past: Past, as_json: bool, plot: Path | None, markdown: Path | None
) -> None:
    """The admin's page, of one policy."""
    world, policy = request.world, request.policies[0]
    shared = request.experiment(policy)
    whole = request.experiment(policy_named(EXCLUSIVE))
    with progress(0) as step:
        made = page(past, world.assumed, world.gpu_mib, shared, whole, lambda what: step(what, 0))
        figures = made.figures if request.runs == 1 else simulate(shared)
    words = text_of(made, world.machine.text, shared, world.said)
    if plot is not None:
        before, after = made.over_time
        in_use, waiting = (before.in_use, after.in_use), (before.waiting, after.waiting)
        save(before_after(in_use, waiting, made.gpus, words.title), plot)
    if markdown is not None:
        write_text(markdown, pagetext.markdown(words))
    if as_json:
        body = {"schema": 1, **figures, "runs": request.runs, "policy": policy.name}
        print(json.dumps({**body, **context(request), "page": _page_json(made)}))
    else:
        _show_page(words)


def _page_json(made: Page) -> Figures:
    return {
        "jobs": made.jobs,
        "users": made.users,
        "gpus": made.gpus,
        "gpus_needed": made.gpus_needed,
        "gpu_hours_saved": made.saved_hours,
        "recorded_wait_s": made.recorded_wait_s,
        "whole": asdict(made.whole),
        "shared": asdict(made.shared),
        "cases": [
            {
                "name": case.name,
                "assumed_smact": case.assumed.smact,
                "assumed_memory_ratio": case.assumed.memory,
                **asdict(case.side),
            }
            for case in made.cases
        ],
    }


def _show_page(words: pagetext.Text) -> None:
    def table(rows: pagetext.Rows) -> Table:
        first, *others = rows[0]
        return render.table("", [first, *(f"{name}>" for name in others)], rows[1:])

    render.show(Text(words.title, style="bold"), Text(words.summary), Text(""))
    render.show(table(words.main), Text(""), *(Text(line) for line in words.remarks))
    render.show(Text(""), table(words.cases), Text(""), Text("What was assumed"))
    render.show(*(Text(f"- {line}") for line in words.said))


def write_text(path: Path, text: str) -> None:
    """Write a file; raises UsageFault."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as err:
        raise UsageFault(f"{path}: cannot be written: {err.strerror or err}") from err


# ---- JSON --------------------------------------------------------------------------------------


def _json(request: Request, found: Mapping[str, Figures], names: Sequence[str]) -> Figures:
    """The first policy's figures at the top; with a comparison every policy's, by name."""
    body = {**found[names[0]], "policy": names[0], **context(request)}
    if request.compares:
        body["policies"] = {
            name: {**figures, **savings(figures, found[EXCLUSIVE])}
            for name, figures in found.items()
        }
    return body


def context(request: Request) -> Figures:
    """What the figures hold for."""
    rules = request.setting.conditions
    return {
        "gpus": request.world.machine.text,
        "jobs": len(request.world.jobs),
        "estimator": request.estimator,
        "method": request.setting.method,
        "interference": request.setting.interference.name,
        "seed": request.seed,
        "conditions": asdict(rules),
        "assumed": list(request.said()),
    }


def savings(figures: Figures, exclusive: Figures) -> Figures:
    """Part of the exclusive makespan that is saved, and of what the bound would save."""
    whole = exclusive["makespan_s"]
    saved, most = whole - figures["makespan_s"], whole - exclusive["bound_s"]
    return {
        "saving_ratio": saved / whole if whole else 0.0,
        "of_bound_ratio": saved / most if most > 1e-9 * whole else None,
    }


# ---- for people --------------------------------------------------------------------------------

SIZES = dict(zip(BY_SIZE, ("a share", "one GPU", "several"), strict=True))
COLUMNS = (
    "policy", "makespan>", "saved>", "of bound>", "wait>", "slowdown p95>", "OOM>", "timeouts>",
    "energy MJ>",
)  # fmt: skip


def _show(request: Request, found: Mapping[str, Figures], names: Sequence[str]) -> None:
    exclusive = found[EXCLUSIVE]
    rows: list[Sequence[object]] = [_row(name, found[name], exclusive) for name in found]
    bound_s = exclusive["bound_s"]
    most = savings({"makespan_s": bound_s}, exclusive)["saving_ratio"]
    rows.append(("bound", render.span(bound_s), f"{most:.1%}", "100%", *[None] * 5))
    title = f"{_jobs(request)} on {request.world.machine.text}, {_runs(request)}"
    parts: list[RenderableType] = [Text(title), render.table("", COLUMNS, rows)]
    if len(sizes := [name for name in BY_SIZE if name in exclusive]) > 1:
        heads = ["mean wait", *(f"{SIZES[name]}>" for name in sizes)]
        waits = [(name, *(render.span(one[size]) for size in sizes)) for name, one in found.items()]
        parts.append(render.table("", heads, waits))
    render.show(*parts, Text(_sentence(found, names, most)))
    for line in request.said():
        render.show(Text(f"note: {line}"))


def _jobs(request: Request) -> str:
    return counted(len(request.world.jobs), "job")


def _runs(request: Request) -> str:
    return f"means of {request.runs} runs" if request.runs > 1 else "one run"


def _row(name: str, figures: Figures, exclusive: Figures) -> Sequence[object]:
    saved = savings(figures, exclusive)
    first = name == EXCLUSIVE
    part = saved["of_bound_ratio"]
    return (
        name,
        render.span(figures["makespan_s"]),
        None if first else f"{saved['saving_ratio']:.1%}",
        None if first or part is None else f"{part:.0%}",
        render.span(figures["mean_wait_s"]),
        f"{figures['p95_slowdown']:.2f}",
        f"{figures['oom']:.3g}",
        f"{figures['timeouts']:.3g}",
        f"{figures['energy_mj']:.2f}",
    )


def _sentence(found: Mapping[str, Figures], names: Sequence[str], most: float) -> str:
    """What it comes to, of the policy that ends first."""
    exclusive = found[EXCLUSIVE]
    name = min(names, key=lambda one: found[one]["makespan_s"])
    best = found[name]
    saved = savings(best, exclusive)["saving_ratio"]
    if name == EXCLUSIVE:
        return f"Without sharing; no schedule could save more than {most:.1%} (bound)."
    how = "less" if saved >= 0 else "more"
    return (
        f"{name} needs {abs(saved):.1%} {how} time than exclusive (the bound allows {most:.1%});"
        f" a job waits {render.span(best['mean_wait_s'])} instead of"
        f" {render.span(exclusive['mean_wait_s'])} in the mean."
    )
