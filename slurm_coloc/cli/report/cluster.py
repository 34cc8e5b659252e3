# SPDX-License-Identifier: Apache-2.0
"""The page of `coloc report --cluster`: what sharing saved and cost, over many runs."""

import time
from collections.abc import Sequence
from itertools import pairwise
from statistics import median, quantiles
from xml.etree import ElementTree as ET

import slurm_coloc.cli.report.charts as charts
from slurm_coloc.cli import render
from slurm_coloc.cli.report.charts import Column
from slurm_coloc.cli.report.markup import Child, element, fact, facts, figure, key, page, table
from slurm_coloc.cli.tries import ENDED
from slurm_coloc.core.recover.next_try import VICTIMS
from slurm_coloc.core.recover.outcome import WHOSE
from slurm_coloc.core.report.cluster import SLOWER, Group, Report
from slurm_coloc.core.report.past import PastRun

GROUPS = (
    *("RUNS>", "SHARED>", "COMPLETED>", "OUT OF MEMORY>", "GPU HOURS>", "OF SHARES>", "SAVED>"),
)
MOST, MOST_IDLE = 50, 10  # rows of a table


def cluster_page(found: Report, since_s: float, until_s: float, *, whose: str, more: bool) -> str:
    """``whose``: of whom the runs are; ``more``: older ones were left out."""
    day = "%Y-%m-%d"
    begin = time.strftime(day, time.localtime(since_s))
    end = time.strftime(day, time.localtime(until_s))
    title = f"GPU sharing, {begin} to {end}"
    about = (
        f"{found.runs:,} runs of --coloc jobs of {whose} on {found.gpus:,} GPUs ended then,"
        f" of {render.hours(found.hours)} GPU hours."
    )
    if more:
        about += " Older ones were left out: they were too many."
    if not found.runs:
        return page(title, element("p", about, class_="about"))
    return page(
        title,
        element("p", about, class_="about"),
        facts(*_key_figures(found)),
        *_days(found),
        *_ends(found),
        *_estimates(found),
        *_speed(found),
        *_idle(found.idle),
        *_groups("Partitions", "PARTITION", found.partitions),
        *_groups("Accounts", "ACCOUNT", found.accounts),
        *(_groups("Users", "USER", found.users) if len(found.users) > 1 else ()),
        *_how(),
    )


def _of(part: float, whole: float) -> str:
    return render.percent(part / whole if whole else None)


def _span(seconds: float | None) -> str:
    return render.NONE if seconds is None else render.span(seconds)


def _key_figures(found: Report) -> list[ET.Element]:
    shared, others = found.waits_s
    by_others = sum(found.ooms[str(blame)] for blame in VICTIMS)
    figures = [
        fact(
            f"{render.hours(found.saved_hours)} h",
            f"GPU time that sharing saved: {_of(found.saved_hours, found.shared_hours)} of"
            f" {render.hours(found.shared_hours)} h of runs with a share",
        ),
        fact(_of(found.shared, found.runs), f"of the runs had a share: {found.shared:,}"),
        fact(
            f"{found.ooms.total():,}",
            f"runs ran out of GPU memory, {by_others:,} by no doing of their own",
        ),
        fact(_span(shared), f"median wait of a share; {_span(others)} of a whole GPU"),
        fact(
            _span(found.sooner_s),
            "in sum, by which shares began before the jobs on their GPUs had left",
        ),
    ]
    if found.predicted:
        slower = found.predicted_hours / found.alone_hours
        figures.append(
            fact(f"{slower:.2f}", "times as long as alone ran a share in the mean, as predicted")
        )
    if found.ratios:
        figures.append(fact(f"{median(found.ratios):.2f}", "median of measured peak over estimate"))
    if found.idle:
        text = "runs held a GPU for long without activity"
        figures.append(fact(f"{len(found.idle):,}", text))
    return figures


def _days(found: Report) -> list[Child]:
    jobs, hours = [], []
    for day in found.days:
        date = time.strftime("%Y-%m-%d", time.gmtime(day.at_s))
        label = date[5:]
        parts = (("share", float(day.shared)), ("whole", float(day.whole)))
        about = f"{date}: {day.shared} with a share, {day.whole} others, {day.oom} out of memory"
        jobs.append(Column(label, parts, about))
        saved = f"{date}: {day.saved_hours:.1f} GPU hours saved"
        hours.append(Column(label, (("good", day.saved_hours),), saved))
    return [
        element("h2", "Day by day"),
        figure(
            charts.columns(jobs, "Runs that ended on each day"),
            "Runs by the day of their end (UTC):",
            *key("share", "with a share"),
            *key("whole", "others"),
        ),
        figure(charts.columns(hours, "GPU hours saved on each day", " h"), "GPU hours saved."),
    ]


def _ends(found: Report) -> list[Child]:
    words = {str(code): text for code, text in (*ENDED.items(), *WHOSE.items())}
    rows, whose = (
        [(words.get(code, code), f"{count:,}") for code, count in counts.most_common()]
        for counts in (found.outcomes, found.ooms)
    )
    parts: list[Child] = [element("h2", "How runs ended"), table(("END", "RUNS>"), rows)]
    if found.put_back:
        text = f"{found.put_back:,} more were put back before they began: their GPU was not fit."
        parts.append(element("p", text, class_="note"))
    if whose:
        parts += [element("h2", "Out of GPU memory"), table(("WHOSE DOING", "RUNS>"), whose)]
    return parts


def _estimates(found: Report) -> list[Child]:
    if len(found.ratios) < 2:
        return []
    steps = quantiles(found.ratios, n=20, method="inclusive")
    few, many = steps[0], steps[-1]
    text = (
        f"Of {len(found.ratios):,} runs with an estimate and a measured peak the peak was"
        f" {few:.2f} to {many:.2f} of the estimate in nine of ten; {found.over_upper:,} peaks were"
        " above the upper bound."
    )
    return [
        element("h2", "Estimate and peak"),
        element("p", text),
        figure(
            charts.near(found.pairs, "Estimates and measured peaks"),
            "Estimate (across) and measured peak (up), GiB. On the dashed line both are equal.",
            *key("share", "at most the estimate"),
            *key("bad", "above it"),
        ),
    ]


def _speed(found: Report) -> list[Child]:
    if not found.predicted:
        return []
    ends = ["1", *(f"{end:g}" for end in SLOWER)]
    names = [f"{low} to {high}" for low, high in pairwise(ends)]
    names.append(f"over {ends[-1]}")
    bars = [
        Column(
            name.partition(" ")[2] if " to " in name else name,
            (("share", float(count)),),
            f"{name} times as long as alone: {count} runs",
        )
        for name, count in zip(names, found.slower, strict=True)
    ]
    gained = found.predicted_hours - found.alone_hours
    text = (
        f"Predicted by the model of interference from the expected activity of the jobs on each"
        f" GPU, for {found.predicted:,} of {found.shared:,} runs with a share: alone they would"
        f" have taken {render.hours(found.alone_hours)} GPU hours and took"
        f" {render.hours(found.predicted_hours)}, {render.hours(gained)} more."
    )
    return [
        element("h2", "Speed"),
        element("p", text),
        figure(
            charts.columns(bars, "Slowdown of runs with a share"),
            "Runs by how many times as long as alone they took.",
        ),
    ]


def _idle(runs: Sequence[PastRun]) -> list[Child]:
    if not runs:
        return []
    rows = [
        (run.job_id, render.user_name(run.uid), run.partition or render.NONE, f"{run.hours:,.1f}")
        for run in runs[:MOST_IDLE]
    ]
    left = len(runs) - len(rows)
    note = element("p", f"{left} with fewer GPU hours are left out.", class_="note")
    return [
        element("h2", "GPUs held without activity"),
        element(
            "p", "No SM activity for agent.idle_after_s at a time; GPU hours of the whole run."
        ),
        table(("JOB>", "USER", "PARTITION", "GPU HOURS>"), rows),
        note if left else None,
    ]


def _groups(title: str, head: str, groups: Sequence[Group]) -> list[Child]:
    rows = [
        (
            *(group.name, f"{group.runs:,}", f"{group.shared:,}", f"{group.completed:,}"),
            *(f"{group.oom:,}", f"{group.hours:,.1f}", f"{group.shared_hours:,.1f}"),
            f"{group.saved_hours:,.1f}",
        )
        for group in groups[:MOST]
    ]
    left = len(groups) - len(rows)
    note = element("p", f"{left} more are left out.", class_="note") if left else None
    return [element("h2", title), table((head, *GROUPS), rows), note]


def _how() -> list[Child]:
    return [
        element("h2", "How these figures are made"),
        element(
            "p",
            "GPU time saved is the GPU hours of all runs with a share, less the hours in which"
            " their GPUs were in use by one of them. It counts the hours that the runs took, and"
            " beside others they take longer: the hours that they took more stand under Speed,"
            " where they can be predicted. Of an hour with n runs on a GPU each has saved 1 - 1/n."
            " Where the node did not tell a run's GPU nothing is counted as saved. Peaks are the"
            " agents'. Jobs without --coloc are not in here.",
            class_="note",
        ),
    ]
