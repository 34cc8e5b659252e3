# SPDX-License-Identifier: Apache-2.0
"""Which static MIG layout would have served the runs of the past best.

A list schedule, nothing more: the runs come in the order in which they were submitted, each goes to
the place that would have finished it first among those that hold it, and keeps that place to its
end. A run on a MIG device is as fast as core/place/interference says of a slice (the part of the
GPU's SMs over its SM activity alone; activity that nobody measured counts as 1, the slowest case).
Whole GPUs take one run each here: what MPS gains on them is not in this comparison.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.core.decide.slices import HELD_MIB
from slurm_coloc.core.gpu.mig import Card, Profile, layouts
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import REFERENCE


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run as it was: submit time, seconds that it ran, peak of its memory (MiB), SM activity
    alone (0 to 1; None: not known)."""

    submit_s: float
    run_s: float
    peak_mib: int
    smact: float | None = None


@dataclass(frozen=True, slots=True)
class Fit:
    """A profile, how many of the runs fit one, and the part of their run time that those have."""

    profile: str
    runs: int
    share: float


@dataclass(frozen=True, slots=True)
class Score:
    """How a layout serves the runs. ``layout``: profiles of each cut GPU, () for none cut;
    ``unserved``: runs that fit nowhere; means over the served ones, in seconds."""

    layout: tuple[str, ...]
    unserved: int
    mean_wait_s: float
    mean_run_s: float
    makespan_s: float

    @property
    def mean_s(self) -> float:
        """Mean time from submit to end."""
        return self.mean_wait_s + self.mean_run_s


@dataclass(slots=True)
class _Place:
    mib: int
    fraction: float
    free_s: float = 0.0


def fits(card: Card, runs: Sequence[PastRun]) -> list[Fit]:
    """How many of the runs fit each profile of the card."""
    total_s = sum(run.run_s for run in runs) or 1.0
    found = []
    for profile in card.profiles:
        inside = [run for run in runs if run.peak_mib + HELD_MIB <= profile.mib]
        found.append(Fit(profile.name, len(inside), sum(one.run_s for one in inside) / total_s))
    return found


def plan(card: Card, runs: Sequence[PastRun], gpus: int, cut: int, total_mib: int) -> list[Score]:
    """Every full layout of ``cut`` of ``gpus`` equal GPUs, the best first, and no layout at all.

    Best: the fewest runs that fit nowhere, then the shortest mean time from submit to end, then
    the fewest kinds of devices.
    """
    ordered = sorted(runs, key=lambda run: run.submit_s)
    scores = [_score((), ordered, _places(card, (), gpus, 0, total_mib))]
    for names in layouts(card):
        scores.append(_score(names, ordered, _places(card, names, gpus, cut, total_mib)))
    return sorted(
        scores, key=lambda one: (one.unserved, one.mean_s, len(set(one.layout)), len(one.layout))
    )


def _places(
    card: Card, names: tuple[str, ...], gpus: int, cut: int, total_mib: int
) -> list[_Place]:
    each: list[Profile] = [one for name in names if (one := card.profile(name))]
    places = [_Place(one.mib, one.sms / card.sms) for _ in range(cut) for one in each]
    return places + [_Place(total_mib, 1.0) for _ in range(gpus - cut)]


def _score(names: tuple[str, ...], runs: Sequence[PastRun], places: list[_Place]) -> Score:
    waits, lengths, last = 0.0, 0.0, 0.0
    served = 0
    for run in runs:
        best: tuple[float, float, _Place] | None = None
        for place in places:
            if run.peak_mib + HELD_MIB > place.mib:
                continue
            length = run.run_s / _speed(run, place.fraction)
            begin = max(run.submit_s, place.free_s)
            if best is None or begin + length < best[0] + best[1]:
                best = (begin, length, place)
        if best is None:
            continue
        begin, length, place = best
        place.free_s = begin + length
        served += 1
        waits, lengths = waits + begin - run.submit_s, lengths + length
        last = max(last, begin + length)
    count = max(1, served)
    began = runs[0].submit_s if runs else 0.0
    return Score(names, len(runs) - served, waits / count, lengths / count, max(0.0, last - began))


def _speed(run: PastRun, fraction: float) -> float:
    if fraction >= 1.0:
        return 1.0
    return REFERENCE.slice_speed(Activity(1.0 if run.smact is None else run.smact), fraction)


def commands(card: Card, layout: Sequence[str], gpus: Sequence[int]) -> list[str]:
    """What an admin types to cut these GPUs so: nobody else may use them meanwhile."""
    ids = ",".join(str(one.id) for name in layout if (one := card.profile(name)))
    lines = []
    for gpu in gpus:
        lines += [f"nvidia-smi -i {gpu} -mig 1", f"nvidia-smi mig -i {gpu} -cgi {ids} -C"]
    return lines


def node_gres(whole: str, wholes: int, layout: Sequence[str], cut: int, shards: int) -> str:
    """Gres= of the node's line in slurm.conf, whole GPUs first: slurmd counts in this order."""
    counts = {name: cut * list(layout).count(name) for name in dict.fromkeys(layout)}
    items = [f"gpu:{whole}:{wholes}"] if wholes else []
    items += [f"gpu:{name}:{count}" for name, count in counts.items()]
    return ",".join([*items, *([f"shard:{shards}"] if shards else [])])
