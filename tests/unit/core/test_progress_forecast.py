# SPDX-License-Identifier: Apache-2.0
"""The time left from what a log said at several looks: known trainings, looked at each 30 s."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from slurm_coloc.core.time.progress.forecast import MARKS, Forecast, Progress
from slurm_coloc.core.time.progress.past import left_after
from slurm_coloc.core.time.progress.reading import Said

LOOK_S = 30.0

Log = Callable[[float], Said]


def looks(log: Log, lasted_s: float) -> Iterator[tuple[float, Forecast | None]]:
    """Each look's time and forecast."""
    progress = Progress()
    for look in range(1, int(lasted_s / LOOK_S)):
        progress.see(look * LOOK_S, log(look * LOOK_S))
        yield look * LOOK_S, progress.forecast(look * LOOK_S)


def at(log: Log, lasted_s: float, part: float) -> tuple[Forecast, float]:
    """The forecast after a part of the run, and the time that is really left then."""
    at_s, found = [one for one in looks(log, lasted_s) if one[0] <= part * lasted_s][-1]
    assert found is not None
    return found, lasted_s - at_s


def bar(total: int, step_s: float, begin_s: float = 60.0) -> Log:
    """One bar over the whole run."""

    def log(now_s: float) -> Said:
        done = max(0.0, now_s - begin_s) / step_s
        return Said(step=float(int(done)), steps=total, elapsed_s=max(0.0, now_s - begin_s))

    return log


def in_epochs(epochs: int, train_s: float, validation_s: float) -> Log:
    """Labels and counters; while it validates the counter stands still."""

    def log(now_s: float) -> Said:
        each = train_s + validation_s
        epoch, into_s = int(now_s / each), now_s % each
        step = min(1.0, into_s / train_s) * 100
        return Said(epoch=epoch + 1.0, epochs=epochs, first=1.0, step=step, steps=100.0)

    return log


def test_one_bar_over_the_whole_run() -> None:
    """The slow begin does not count."""
    lasted_s = 60.0 + 5000
    for part in (0.1, 0.5, 0.9):
        told, left_s = at(bar(10_000, 0.5), lasted_s, part)
        assert told.left_s == pytest.approx(left_s, rel=0.01)
        assert told.low_s is not None and told.high_s is not None
        assert told.low_s <= left_s <= told.high_s


def test_validation_counts() -> None:
    lasted_s = 20 * (300.0 + 100.0)
    for part in (0.1, 0.3, 0.8):
        told, left_s = at(in_epochs(20, 300.0, 100.0), lasted_s, part)
        assert told.left_s == pytest.approx(left_s, rel=0.1)


def test_a_validation_that_is_still_to_come() -> None:
    """The counter is nearly at its end and a third of the epoch is not over yet."""
    lasted_s = 3 * (600.0 + 300.0)
    for part in (0.4, 0.55, 0.66, 0.88, 0.95):
        told, left_s = at(in_epochs(3, 600.0, 300.0), lasted_s, part)
        assert told.left_s == pytest.approx(left_s, rel=0.1, abs=LOOK_S)


def test_a_neighbour_makes_it_longer() -> None:
    """The newest pace counts."""

    def log(now_s: float) -> Said:
        done = now_s if now_s < 3000 else 3000 + (now_s - 3000) / 2
        return Said(step=done, steps=10_000.0, elapsed_s=now_s)

    told = next(one for at_s, one in looks(log, 9000) if at_s == 6000)
    assert told is not None and told.left_s is not None
    assert 9_000 < told.left_s < 11_500  # 11,000: 5,500 are left at half the speed


def test_epochs_alone() -> None:
    """Labels at the end of each epoch: between them time passes."""

    def log(now_s: float) -> Said:
        done = int(now_s / 400)
        return Said(epoch=float(done), epochs=20, first=1.0, ended=True) if done else Said()

    told = dict(looks(log, 8000))
    assert told[390.0] is None
    for at_s in (900.0, 1500.0, 4110.0, 4200.0):
        one = told[at_s]
        assert one is not None and one.left_s == pytest.approx(8000 - at_s, rel=0.05)


@pytest.mark.parametrize(
    ("said", "total"),
    [
        (Said(epoch=3, epochs=9, first=0, last=True), 10),
        (Said(epoch=3, epochs=10, first=0), 10),
        (Said(epoch=3, epochs=9, first=0, set_epochs=10), 10),
        (Said(epoch=3, first=0, set_epochs=30), 30),
        (Said(epoch=3, epochs=10, first=1), 10),
        (Said(exact=1.5, step=450, steps=900), None),
        (Said(exact=1.4, step=450, steps=900, set_epochs=3, trainer=True), 3),
        (Said(exact=1.5, set_epochs=3), 3),
    ],
)
def test_how_many_epochs_there_are(said: Said, total: float | None) -> None:
    progress = Progress()
    progress.see(30.0, said)
    told = progress.forecast(30.0)
    assert told is not None and told.epochs == total


def test_without_a_total_nothing_is_claimed() -> None:
    progress = Progress()
    for look in range(1, 20):
        progress.see(look * LOOK_S, Said(epoch=float(look), first=1.0))
    told = progress.forecast(20 * LOOK_S)
    assert told == Forecast(None, None, None, None, 18.0, None)
    assert Progress().forecast(0.0) is None


def test_a_bar_that_may_be_of_one_epoch() -> None:
    """The run was told to take ten epochs and its bar names none: nothing is claimed until the bar
    begins again, then the epochs are counted."""

    def log(now_s: float) -> Said:
        step = float(int(now_s % 300))
        return Said(step=step, steps=300.0, elapsed_s=step, set_epochs=10.0)

    told = dict(looks(log, 3000))
    assert told[270.0] is None or told[270.0].left_s is None
    later = told[900.0]
    assert later is not None and later.epochs == 10
    assert later.left_s == pytest.approx(2100, rel=0.1)


def test_a_validations_bar_is_not_the_trainings() -> None:
    def log(now_s: float) -> Said:
        into_s = now_s % 400
        if into_s >= 300:
            return Said(step=into_s - 300, steps=100.0, elapsed_s=into_s - 300, epoch=None)
        return Said(step=into_s, steps=300.0, elapsed_s=into_s)

    progress = Progress()
    for look in range(1, 12):
        progress.see(look * LOOK_S, log(look * LOOK_S))
    told = progress.forecast(11 * LOOK_S)
    assert told is not None and told.done == pytest.approx(0.9)


def test_another_training_in_the_same_log() -> None:
    progress = Progress()
    for look in range(1, 11):
        progress.see(look * LOOK_S, Said(epoch=look + 0.0, epochs=10, first=1.0, ended=True))
    over = progress.forecast(300.0)
    assert over is not None and (over.done, over.left_s) == (1.0, 0.0)
    for look in range(1, 5):
        progress.see(300 + look * LOOK_S, Said(epoch=look + 0.0, epochs=10, first=1.0, ended=True))
    again = progress.forecast(420.0)
    assert again is not None and again.left_s == pytest.approx(180, abs=LOOK_S)


def test_the_logs_own_figure_where_there_is_no_other() -> None:
    progress = Progress()
    progress.see(30.0, Said(step=459, left_s=3600))
    told = progress.forecast(90.0)
    assert told is not None and told.left_s == 3540


@pytest.mark.parametrize("left_s", [None, 1e12])
def test_a_log_that_claims_to_last_for_ever(left_s: float | None) -> None:
    """Nothing is told of it: colocd takes no such figure."""
    progress = Progress()
    for look in range(1, 5):
        progress.see(look * LOOK_S, Said(step=float(look), steps=1e12, left_s=left_s))
    told = progress.forecast(150.0)
    assert told is not None and (told.left_s, told.low_s, told.high_s) == (None, None, None)


def test_a_long_run_keeps_few_places() -> None:
    progress = Progress()
    for look in range(5000):
        progress.see(look * LOOK_S, Said(step=float(look), steps=10_000.0))
    told = progress.forecast(5000 * LOOK_S)
    assert told is not None and told.left_s == pytest.approx(5000 * LOOK_S, rel=0.02)
    assert len(progress._marks) <= MARKS
    assert all(old.at_s < new.at_s for old, new in pairwise(progress._marks))


def test_from_earlier_runs() -> None:
    assert left_after([], 10.0) is None
    assert left_after([100.0, 50.0], 100.0) is None
    assert left_after([100.0], 20.0) == pytest.approx((80, 56, 104))
    left_s, low_s, high_s = left_after([*range(100, 200, 10)], 40.0) or (0, 0, 0)
    assert (left_s, low_s, high_s) == pytest.approx((105, 70, 140))
