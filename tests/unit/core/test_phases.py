# SPDX-License-Identifier: Apache-2.0
"""How fast a run is beside another against alone, by what its log says."""

import pytest

from slurm_coloc.core.time.progress.pace import Mark
from slurm_coloc.core.time.progress.phases import ALONE, LEAST, Phases

SETTLE_S, LEAST_S, LOOK_S = 60.0, 600.0, 30.0


class Log:
    """A run that is looked at every LOOK_S; its log tells what was done at each look."""

    def __init__(self) -> None:
        self.phases = Phases(SETTLE_S, LEAST_S)
        self.at_s, self.done = 1000.0, 0.0
        self.told: dict[str, float] = {}

    def go(self, beside: str | None, seconds: float, pace: float, every: int = 1) -> "Log":
        """So long beside this one, ``pace`` parts of the run in a second; the log says something
        at each ``every``-th look."""
        for look in range(round(seconds / LOOK_S)):
            if look % every == 0:
                self.said = Mark(self.at_s, self.done)
            if self.phases.see(self.at_s, beside, self.said):
                self.told |= self.phases.new_speeds()
            self.at_s += LOOK_S
            self.done += LOOK_S * pace
        return self

    def end(self) -> dict[str, float]:
        return {**self.told, **self.phases.end()}


@pytest.mark.parametrize("alone_first", [True, False])
def test_a_pace_beside_another_over_that_alone(alone_first: bool) -> None:
    log = Log()
    for beside, pace in ((ALONE, 1e-4), ("other", 7e-5))[:: 1 if alone_first else -1]:
        log.go(beside, 1800.0, pace)
    assert log.end() == pytest.approx({"other": 0.7})


def test_who_begins_does_not_compute_yet() -> None:
    log = Log().go(ALONE, 1800.0, 1e-4).go("other", SETTLE_S, 1e-4).go("other", 1800.0, 5e-5)
    assert log.end() == pytest.approx({"other": 0.5})


def test_several_stretches_are_one_measurement() -> None:
    log = Log()
    for _ in range(3):
        log.go(ALONE, 900.0, 1e-4).go("other", 900.0, 8e-5)
    assert log.told == pytest.approx({"other": 0.8}), "as soon as a stretch has ended"
    assert log.phases.end() == {}, "each pair once"


@pytest.mark.parametrize(
    "log",
    [
        Log().go("other", 3600.0, 1e-4),
        Log().go(ALONE, 3600.0, 1e-4),
        Log().go(ALONE, 3600.0, 1e-4).go(None, 3600.0, 1e-5),
        Log().go(ALONE, 3600.0, 1e-4).go("other", LEAST_S, 1e-5),
        Log().go(ALONE, 3600.0, 1e-4).go("other", 3600.0, 1e-5, every=40),
        Log().go(ALONE, 3600.0, 0.0).go("other", 3600.0, 1e-5),
    ],
    ids=["never-alone", "never-beside", "several-or-unknown", "short", "rare", "stands-still"],
)
def test_what_says_nothing(log: Log) -> None:
    assert log.end() == {}


def test_another_training_in_the_same_log_counts_by_itself() -> None:
    log = Log().go(ALONE, 1800.0, 1e-4)
    log.done = 0.0
    log.go(ALONE, 1800.0, 2e-4).go("other", 1800.0, 1e-4)
    assert log.end() == pytest.approx({"other": 0.5})


@pytest.mark.parametrize(("pace", "speed"), [(1e-3, 1.0), (1e-9, LEAST)])
def test_a_log_may_claim_anything(pace: float, speed: float) -> None:
    assert Log().go(ALONE, 1800.0, 1e-4).go("other", 1800.0, pace).end() == {"other": speed}
