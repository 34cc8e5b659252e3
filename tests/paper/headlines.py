# SPDX-License-Identifier: Apache-2.0
"""The published headlines that are no row of a table: H1 to H10, X1 to X4."""

from collections.abc import Callable, Mapping
from statistics import fmean

from tests.paper import orders
from tests.paper.cases import METHODS, ORACLES, Case, carma, of_words, oracle
from tests.paper.facts import Published
from tests.paper.play import Lab
from tests.paper.rows import Limits, Statement, reduction

TIME, ENERGY = "makespan_s", "energy_mj"
#: what is possible, by trace
Possible = Mapping[str, Limits]
Build = Callable[[Published, Lab, Possible], list[Statement]]


def _row(trace: str, policy: str, given: str) -> Case:
    return of_words(trace, policy, "MPS", given)


def _number(case: Case, name: str) -> Build:
    def build(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
        assert row.number is not None, row.id
        return [reduction(row, case, lab, possible[case.trace], name, row.number)]

    return build


def _gpumemnet(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """H3: the text does not say whether the gate was on, so both."""
    assert row.number is not None
    lines = []
    for suffix, given in (("a", "free>=estimate"), ("b", "SMACT<=80%, free>=estimate")):
        case = _row("90", "MAGM+GPUMemNet", given)
        line = reduction(row, case, lab, possible[case.trace], TIME, row.number)
        line.id, line.conditions = row.id + suffix, given
        lines.append(line)
    return lines


def _word(
    row: Published, metric: str, ours: str, holds: bool, possible: Possible
) -> list[Statement]:
    return [
        Statement(
            row.id,
            row.trace,
            f"{row.policy} {row.method}",
            row.conditions or "-",
            metric,
            row.value,
            ours,
            "yes" if holds else "no",
            possible[row.trace].time,
            possible[row.trace].clairvoyant,
        )
    ]


def _streams(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """H4: by streams the oracle policies gain little; much less than by MPS is what is judged."""
    gains = {
        method: {
            short: fmean(lab.reductions(oracle("90", short, method), TIME)) for short in ORACLES
        }
        for method in METHODS
    }
    ours = ", ".join(f"{short} {gain:.1f}" for short, gain in gains["streams"].items())
    ours += f" % (by MPS {min(gains['mps'].values()):.1f} to {max(gains['mps'].values()):.1f})"
    holds = max(gains["streams"].values()) < min(gains["mps"].values()) * 2 / 3
    return _word(row, "total time, % less", ours, holds, possible)


def _best_fit(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """H7: of the oracle policies best fit runs its jobs longest."""
    times = {short: lab.values(oracle("90", short, "mps"), "mean_exec_s") for short in ORACLES}
    ours = ", ".join(f"{short} {fmean(seconds):.0f} s" for short, seconds in times.items())
    best_fit = orders.Ranked("OBF", 1, times["OBF"])
    others = [orders.Ranked(short, 0, times[short]) for short in ORACLES if short != "OBF"]
    lines = _word(row, "mean execution time", ours, True, possible)
    lines[0].holds = _against(orders.pairs([best_fit, *others]))
    return lines


def _against(found: list[orders.Pair]) -> str:
    """Whether all pairs are as published, and which are not."""
    reverse = [pair.low.id for pair in found if pair.verdict == "reversed"]
    unsure = [pair.low.id for pair in found if pair.verdict == "open"]
    if reverse:
        return f"no: reversed with {', '.join(reverse)}"
    return f"open with {', '.join(unsure)}" if unsure else "yes"


def _worst(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """H8: without conditions total time is the worst of the policies by MPS."""
    free = {name: _row("90", name, "none") for name in ("RR", "MAGM")}
    gated = [
        _row("90", policy, f"SMACT<={percent}%, free>=5GB")
        for policy, percent in (("LUG", 80), ("MAGM", 75), ("MAGM", 80), ("MAGM", 85))
    ]
    gains = {name: fmean(lab.reductions(case, TIME)) for name, case in free.items()}
    others = [fmean(lab.reductions(case, TIME)) for case in gated]
    ours = ", ".join(f"{name} {gain:.1f}" for name, gain in gains.items())
    ours += f" %; with conditions {min(others):.1f} to {max(others):.1f} %"
    return _word(row, "total time, % less", ours, max(gains.values()) < min(others), possible)


def _waiting(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """H9: a gate of 75 % makes jobs wait longer than one of 80 or 85 %."""
    waits = {
        percent: lab.spread(_row("90", "MAGM", f"SMACT<={percent}%, free>=5GB"), "mean_wait_s")
        for percent in (75, 80, 85)
    }
    ours = ", ".join(f"{percent} %: {wait.mean:.0f} s" for percent, wait in waits.items())
    holds = waits[75].mean > max(waits[80].mean, waits[85].mean)
    return _word(row, "mean waiting time", ours, holds, possible)


def _heavy(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """H10: the heavy trace gains too."""
    cases = [_row("60", name, "SMACT<=80%, free>=2GB") for name in ("MAGM", "LUG")]
    cases += [_row("60", f"MAGM+{name}", "SMACT<=80%") for name in ("Horus", "GPUMemNet")]
    gains = [fmean(lab.reductions(case, TIME)) for case in cases]
    ours = f"{min(gains):.1f} to {max(gains):.1f} %"
    return _word(row, "total time, % less", ours, min(gains) > 0, possible)


def _later(published: Mapping[str, float]) -> Build:
    """X1, X2: CARMA's later code; its trace is not known, so the best of its ways on each."""

    def build(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
        lines = []
        for trace in ("60", "90"):
            best = max(carma(trace), key=lambda case: fmean(lab.reductions(case, TIME)))
            for name, value in published.items():
                line = reduction(row, best, lab, possible[trace], name, value)
                line.trace, line.policy = f"{trace}?", best.label
                lines.append(line)
        return lines

    return build


def _other_trace(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """X3: another system on a trace that is not here."""
    return [
        Statement(
            row.id,
            row.trace,
            row.policy,
            row.conditions or "-",
            row.metric,
            row.value,
            "-",
            "not compared: its trace is not here",
        )
    ]


def _from_image(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """X4: samples until the end, exclusive and MAGM, read off an image."""
    alone, shared = several(row)
    case = _row("60", "MAGM", "SMACT<=80%, free>=2GB")
    return [reduction(row, case, lab, possible[case.trace], TIME, 100 * (1 - shared / alone))]


#: X1 gives utilisation, time and energy in one row; the first is NVML's and not simulated
HEADLINES: Mapping[str, Build] = {
    "H1": _number(oracle("90", "OWF", "mps"), TIME),
    "H2": _number(_row("90", "LUG", "SMACT<=80%, free>=5GB"), TIME),
    "H3": _gpumemnet,
    "H4": _streams,
    "H5": _number(_row("60", "MAGM", "SMACT<=80%, free>=2GB"), ENERGY),
    "H6": _number(_row("60", "MAGM+GPUMemNet", "SMACT<=80%"), ENERGY),
    "H7": _best_fit,
    "H8": _worst,
    "H9": _waiting,
    "H10": _heavy,
    "X3": _other_trace,
}


KNOWN = {*HEADLINES, "X1", "X2", "X4"}


def several(row: Published) -> list[float]:
    """The numbers of a row that holds several: "+39.3; -26.7; -14.2", "97000; 68700"."""
    return [float(part) for part in row.value.split(";")]


def lines(row: Published, lab: Lab, possible: Possible) -> list[Statement]:
    """A headline's lines."""
    if row.id == "X1":
        _, time, energy = several(row)
        return _later({TIME: -time, ENERGY: -energy})(row, lab, possible)
    if row.id == "X2":
        *_, time, energy = several(row)
        return _later({TIME: -time, ENERGY: -energy})(row, lab, possible)
    if row.id == "X4":
        return _from_image(row, lab, possible)
    return HEADLINES[row.id](row, lab, possible)
