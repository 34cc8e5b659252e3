# SPDX-License-Identifier: Apache-2.0
"""Runs what `coloc simulate` was asked for and prints it."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from slurm_coloc.cli import render
from slurm_coloc.cli.simrequest import EXCLUSIVE, Request
from slurm_coloc.core.placing import Policy
from slurm_coloc.errors import UsageFault
from slurm_coloc.policies import policy as policy_named
from slurm_coloc.sim.simulate import simulate

Figures = dict[str, Any]


def answer(request: Request, as_json: bool, plot: Path | None, markdown: Path | None) -> None:
    """Simulate and print."""
    if markdown is not None and request.world.past is None:
        raise UsageFault("--markdown needs --sacct, --philly or --helios")
    _compare(request, as_json, plot)


def _compare(request: Request, as_json: bool, plot: Path | None) -> None:
    """One policy or several, against exclusive and the bound."""
    wanted = list(request.policies)
    names = [policy.name for policy in wanted]
    alone = as_json and not request.compares
    if not alone and EXCLUSIVE not in names:
        wanted.insert(0, policy_named(EXCLUSIVE))
    found = _simulated(request, wanted)
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
    more when a part of it is done)."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    talk = Console(stderr=True)
    with Progress(
        *columns, TimeElapsedColumn(), console=talk, transient=True, disable=not talk.is_terminal
    ) as bar:
        task = bar.add_task("simulating", total=total)

        def step(what: str, done: int) -> None:
            bar.update(task, description=what, advance=min(done, 1))

        yield step


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
        "conditions": {name: getattr(rules, name) for name in rules.__slots__},
        "assumed": list(request.world.said),
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
    runs = f"means of {request.runs} runs" if request.runs > 1 else "one run"
    title = f"{len(request.world.jobs):,} jobs on {request.world.machine.text}, {runs}"
    render.show(Text(title), render.table("", COLUMNS, rows), Text(_sentence(found, names, most)))
    for line in request.world.said:
        render.show(Text(f"note: {line}"))


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
        f"{name} needs {abs(saved):.1%} {how} time than whole GPUs (the bound allows {most:.1%});"
        f" a job waits {render.span(best['mean_wait_s'])} instead of"
        f" {render.span(exclusive['mean_wait_s'])} in the mean."
    )
