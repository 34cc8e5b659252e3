# SPDX-License-Identifier: Apache-2.0
"""One line of figures an estimator, over measured runs that it was asked about."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from slurm_coloc.adapters.onnx import Onnx
from slurm_coloc.estimate.api import AUTO, TrainingOptions, estimate, registry
from slurm_coloc.estimate.baselines.nets.runner import use
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary

GIB = 1024
#: registered ones first that are ours, then the published ones
FIRST = ("text", "traced")


use(Onnx())  # networks are loaded when one is first asked


class Answer(NamedTuple):
    """An estimate and the bound that is reserved (MiB); one figure is both where a method has no
    bound."""

    mib: float
    upper_mib: float


class Case(NamedTuple):
    """A measured run and what each method said of it; methods without an answer are missing."""

    name: str
    measured_mib: float
    told: Mapping[str, Answer]


class Figures(NamedTuple):
    """Over the ``answered`` runs of ``asked``. ``median``, ``mean``: error, a ratio of what was
    measured. ``under``, ``above``: runs above the estimate and above the bound. ``over_gib``: mean
    of what the bound reserves above what was measured. ``within``: shares within 5, 10 and 20 %.
    ``alike_gib``: the same as ``over_gib`` with the estimate times the least factor with which no
    run is above: what a method reserves too much once it is as safe as the others. The factor is
    chosen with the runs in sight, which is kind to each method."""

    asked: int
    answered: int
    median: float
    mean: float
    under: int
    above: int
    over_gib: float
    alike_gib: float
    within: tuple[float, float, float]


def ask(summary: Summary, options: TrainingOptions, stack: Stack) -> dict[str, Answer]:
    """What all registered estimators say, and what `--coloc` takes (``auto``)."""
    names = (*FIRST, *(name for name in registry() if name not in FIRST), AUTO)
    found = {}
    for name in names:
        answer = estimate(summary, options, stack=stack, estimator=name)
        if answer.memory_mib is not None and answer.upper_mib is not None:
            found[name] = Answer(answer.memory_mib, answer.upper_mib)
    return found


def figures(cases: Sequence[Case], name: str) -> Figures | None:
    """Of one method; None where it answered nothing."""
    ones = [(case.measured_mib, case.told[name]) for case in cases if name in case.told]
    if not ones:
        return None
    errors = sorted(abs(told.mib / measured - 1.0) for measured, told in ones)
    many = len(errors)
    factor = max(measured / told.mib for measured, told in ones)
    return Figures(
        asked=len(cases),
        answered=many,
        median=(errors[(many - 1) // 2] + errors[many // 2]) / 2,
        mean=sum(errors) / many,
        under=sum(told.mib < measured for measured, told in ones),
        above=sum(told.upper_mib < measured for measured, told in ones),
        over_gib=sum(max(0.0, told.upper_mib - measured) for measured, told in ones) / many / GIB,
        alike_gib=sum(factor * told.mib - measured for measured, told in ones) / many / GIB,
        within=(_share(errors, 0.05), _share(errors, 0.1), _share(errors, 0.2)),
    )


def _share(errors: Sequence[float], limit: float) -> float:
    return sum(error < limit for error in errors) / len(errors)


def names(cases: Sequence[Case]) -> list[str]:
    """All methods that answered something, in the order in which they were asked."""
    return list(dict.fromkeys(name for case in cases for name in case.told))


HEAD = (
    "| estimator | answered | median error | mean | under | above the bound | over-reserved |"
    " scaled to none above | 5 % | 10 % | 20 % |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def table(cases: Sequence[Case]) -> str:
    """Markdown: a line for each method."""
    lines = [HEAD]
    for name in names(cases):
        one = figures(cases, name)
        if one is None:
            continue
        near = " | ".join(f"{100 * share:.0f} %" for share in one.within)
        lines.append(
            f"| {name} | {one.answered} of {one.asked} | {100 * one.median:.1f} % |"
            f" {100 * one.mean:.1f} % | {one.under} | {one.above} | {one.over_gib:.1f} GiB |"
            f" {one.alike_gib:.1f} GiB | {near} |"
        )
    return "\n".join(lines)


def each(cases: Sequence[Case], methods: Sequence[str]) -> str:
    """A line a run: what was measured, and how far the named methods are from it."""
    lines = []
    for case in cases:
        off = [
            f"{name} {100 * (case.told[name].mib / case.measured_mib - 1):+.1f} %"
            f" (bound {case.told[name].upper_mib:.0f})"
            for name in methods
            if name in case.told
        ]
        lines.append(
            f"{case.name:32} {case.measured_mib:6.0f} MiB  {', '.join(off) or 'no answer'}"
        )
    return "\n".join(lines)
