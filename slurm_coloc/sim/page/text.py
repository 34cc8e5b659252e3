# SPDX-License-Identifier: Apache-2.0
"""The admin's page in words: the same parts for a terminal and for Markdown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from slurm_coloc.sim.page.figures import SAME_WAIT_S, Page
from slurm_coloc.sim.simulate import Experiment

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Text:
    """The parts, from top to bottom. A table's first row is its header."""

    title: str
    summary: str
    main: Rows
    remarks: Sequence[str]
    cases: Rows
    said: Sequence[str]


def text_of(page: Page, gpus: str, way: Experiment, said: Sequence[str]) -> Text:
    """The page in words. ``gpus``: as the machines are written; ``way``: the shared side."""
    return Text(
        f"Sharing GPUs: {page.jobs:,} runs of {page.users:,} users on {gpus},"
        f" {_day(page.first_s)} to {_day(page.last_s)}",
        _summary(page),
        _main(page),
        list(_remarks(page)),
        _cases(page),
        [*_method(page, way), *said],
    )


def _summary(page: Page) -> str:
    wait, now = page.whole.mean_wait_s, page.shared.mean_wait_s
    hours = page.saved_hours / page.whole.gpu_hours if page.whole.gpu_hours else 0.0
    if page.shared.did == 0:
        return "Nothing would have been shared: no two jobs that may share met."
    waits = "jobs hardly wait as it is"
    if wait > SAME_WAIT_S:
        waits = f"jobs would have waited {_span(now)} instead of {_span(wait)} in the mean"
    freed = f"{hours:.0%} of the GPU hours would have been free for others"
    if hours < 0:
        freed = f"jobs would have kept GPUs for {-hours:.0%} more hours"
    return f"With shared GPUs {waits}, and {freed}."


def _main(page: Page) -> Rows:
    whole, shared = page.whole, page.shared
    rows = [["", "whole GPUs", "shared", "change"]]
    for name, one, other in (
        ("waiting, mean", whole.mean_wait_s, shared.mean_wait_s),
        ("waiting, 95 of 100 jobs at most", whole.p95_wait_s, shared.p95_wait_s),
        ("waiting of jobs that cannot share", whole.whole_wait_s, shared.whole_wait_s),
        ("from submission to end, mean", whole.mean_jct_s, shared.mean_jct_s),
    ):
        if one is not None and other is not None:
            rows.append([name, _span(one), _span(other), _change(one, other)])
    for name, one, other in (
        ("GPU hours in use", whole.gpu_hours, shared.gpu_hours),
        ("energy of the GPUs, kWh", whole.energy_kwh, shared.energy_kwh),
    ):
        rows.append([name, f"{one:,.0f}", f"{other:,.0f}", _change(one, other)])
    if page.gpus_needed is not None:
        needed = page.gpus_needed
        name = "GPUs needed for that waiting"
        rows.append([name, f"{page.gpus}", f"{needed}", _change(page.gpus, needed)])
    return rows


def _remarks(page: Page) -> Iterator[str]:
    side = page.shared
    yield (
        f"{_part(side.could, page.jobs)} of the jobs could share a GPU;"
        f" {_part(side.did, page.jobs)} would have had a neighbour."
    )
    if side.did:
        yield (
            f"Those run {side.slowdown_median:.2f} times as long as alone in the middle (median),"
            f" 5 % of them {side.slowdown_p95:.2f} times and more."
        )
    yield (
        f"Out of GPU memory for a wrong estimate: {side.oom:,}"
        + (
            " (started again on a whole GPU, from their beginning or checkpoint)."
            if side.oom
            else "."
        )
    )
    yield f"Ended by their time limit because of a neighbour: {side.timeouts:,}."


def _cases(page: Page) -> Rows:
    rows = [
        ["if jobs keep a GPU busy / fill its memory", "waiting", "GPU hours saved", "time, median",
         "95 of 100 at most", "out of memory"],
    ]  # fmt: skip
    for case in page.cases:
        side = case.side
        saved = (page.whole.gpu_hours - side.gpu_hours) / (page.whole.gpu_hours or 1.0)
        name = f"{case.assumed.smact:.0%} / {case.assumed.memory:.0%}"
        if case.name == "as assumed":
            name += " (this page)"
        rows.append([
            name, _span(side.mean_wait_s), f"{saved:.0%}", f"{side.slowdown_median:.2f} x",
            f"{side.slowdown_p95:.2f} x", f"{side.oom:,}",
        ])  # fmt: skip
    return rows


def _method(page: Page, way: Experiment) -> Iterator[str]:
    yield (
        "both sides are simulated in one queue: Slurm's backfill and the file's time limits, no"
        " other limits, priorities or broken nodes"
    )
    yield (
        f"mean wait in the file {_span(page.recorded_wait_s)}, simulated on whole GPUs"
        f" {_span(page.whole.mean_wait_s)}: how far the simulated cluster is from yours"
    )
    rules = way.setting.conditions
    owner = {"user": "the same user", "account": "the same account", "anyone": "anyone"}
    budget = ""
    if rules.budget is not None:
        budget = f", whose SM activities add up to {rules.budget:g} at most"
    if way.setting.size_budget is not None:
        budget += f", each with room for its SM activity ({way.setting.size_budget:g} a GPU)"
    yield (
        f"policy {way.policy.name}, {way.setting.method}: at most {rules.jobs} jobs of"
        f" {owner[rules.share_with]} on a GPU{budget}"
    )
    yield _known(way.estimator)


def _known(estimator: str) -> str:
    kind, _, error = estimator.partition(":")
    if kind == "oracle":
        return "what a job takes of GPU memory is known exactly beforehand"
    if kind == "none":
        return "nothing is known of a job's GPU memory beforehand"
    off = float(error.split(":")[0])
    return (
        f"GPU memory is estimated beforehand: half of the estimates are off by {off:.0%} and more,"
        " 99 of 100 jobs stay within what is reserved"
    )


def _part(number: int, of: int) -> str:
    return f"{number:,} of {of:,} ({number / of:.0%})" if of else "0"


def _change(before: float, after: float) -> str:
    if before == 0:
        return ""
    change = after / before - 1
    return "same" if abs(change) < 0.005 else f"{change:+.0%}"


def _span(seconds: float) -> str:
    """48 s, 12 min, 3.4 h, 2.1 days."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 72 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.1f} days"


def _day(at_s: float) -> str:
    """The day of a time of an accounting file, on the file's own clock."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d")


def markdown(text: Text) -> str:
    """The page as Markdown."""
    out = [f"# {text.title}", "", text.summary, "", *_table(text.main), ""]
    out += [f"- {line}" for line in text.remarks]
    out += ["", "## What hangs on the assumptions", "", *_table(text.cases), ""]
    out += ["## What was assumed", "", *(f"- {line}" for line in text.said)]
    return "\n".join(out) + "\n"


def _table(rows: Rows) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"| {' | '.join(row)} |"
        if number == 0:
            yield "|---" + "|---:" * (len(row) - 1) + "|"
