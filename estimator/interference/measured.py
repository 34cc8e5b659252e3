# SPDX-License-Identifier: Apache-2.0
"""Measured pairs of trainings, and how sure their speeds are."""

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slurm_coloc.core.place.activity import Activity

#: Standard deviation of a solo run time, as a ratio. Eleven trainings (ten on CIFAR100, UNet) were
#: run alone twice, for the profiles and for the pairs: the ratios of their times scatter by 6 %.
SOLO_NOISE = 0.06
#: What a speed is not known better than, whatever the overlap; keeps any pair from counting most.
SPEED_NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Pair:
    """Two trainings on one GPU. ``speeds``: of each while both ran, 1 = as alone. ``noise``: their
    standard deviations."""

    names: tuple[str, str]
    jobs: tuple[Activity, Activity]
    speeds: tuple[float, float]
    noise: tuple[float, float]


def read_profiles(path: Path) -> dict[str, Activity]:
    """Training -> its activity alone."""
    with path.open(newline="", encoding="utf-8") as file:
        return {row["workload"]: _activity(row) for row in csv.DictReader(file)}


def _activity(row: dict[str, str]) -> Activity:
    def maybe(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return Activity(
        float(row["smact_mean"]), maybe("smocc_mean"), maybe("drama_mean"), maybe("gract_mean")
    )


def read_unprofiled(
    path: Path, profiles: dict[str, Activity], name: str, activity: Activity
) -> list[Pair]:
    """The pairs of a training without a profile, as if it had that activity."""
    pairs, _ = read_pairs(path, {**profiles, name: activity})
    return [pair for pair in pairs if name in pair.names]


def read_pairs(path: Path, profiles: dict[str, Activity]) -> tuple[list[Pair], list[str]]:
    """The pairs of whose trainings both profiles are known, and the names that are not."""
    pairs, unknown = [], set()
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            names = row["workload_a"], row["workload_b"]
            missing = [name for name in names if name not in profiles]
            unknown.update(missing)
            if not missing:
                pairs.append(_pair(row, names, profiles))
    return pairs, sorted(unknown)


def _pair(row: dict[str, str], names: tuple[str, str], profiles: dict[str, Activity]) -> Pair:
    # The overlap ends with the shorter job. What the longer one had done by then is its solo time
    # less the rest, so an error of its solo time counts the more the shorter the overlap was.
    overlap_s = min(float(row["pair_a_s"]), float(row["pair_b_s"]))
    noise = [
        math.hypot(SPEED_NOISE, SOLO_NOISE * float(row[solo]) / overlap_s)
        for solo in ("solo_a_s", "solo_b_s")
    ]
    return Pair(
        names,
        (profiles[names[0]], profiles[names[1]]),
        (float(row["speed_a_in_overlap"]), float(row["speed_b_in_overlap"])),
        (noise[0], noise[1]),
    )


def families(pair: Pair) -> list[str]:
    """Network and data set of both, whatever the batch: resnet50_imagenet."""
    return sorted({"_".join(name.split("_")[:2]) for name in pair.names})


def workloads(pair: Pair) -> list[str]:
    """Both trainings."""
    return sorted(set(pair.names))


def itself(pair: Pair) -> list[str]:
    """The pair; two runs of the same one count as one."""
    return ["|".join(sorted(pair.names))]


def speeds_of(pairs: Iterable[Pair]) -> list[float]:
    """All speeds in a row."""
    return [speed for pair in pairs for speed in pair.speeds]
