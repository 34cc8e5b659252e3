# SPDX-License-Identifier: Apache-2.0
"""What a monitor shows of a GPU: a window that ends some time ago."""

import pytest

from slurm_coloc.sim.telemetry import History, Monitor

MONITOR = Monitor(window_s=90.0, refresh_s=90.0)


def history() -> History:
    """Idle; at 0.8 with 10,000 MiB from second 60 on; idle again from second 120 on."""
    made = History(40_000)
    made.note(60.0, (0.8, 0.4, 0.2, 10_000), 1e9)
    made.note(120.0, (0.0, 0.0, 0.0, 0), 1e9)
    return made


@pytest.mark.parametrize(
    ("when_s", "free_mib", "smact"),
    [
        (0.0, 40_000, 0.0),
        (59.9, 40_000, 0.0),
        (60.0, 30_000, 0.0),  # memory is that of the moment, activity that of the window
        (90.0, 30_000, 0.8 * 30 / 90),
        (120.0, 40_000, 0.8 * 60 / 90),
        (150.0, 40_000, 0.8 * 60 / 90),
        (180.0, 40_000, 0.8 * 30 / 90),
        (210.0, 40_000, 0.0),
    ],
)
def test_mean_of_a_window(when_s: float, free_mib: int, smact: float) -> None:
    shown = history().at(when_s, MONITOR)
    assert shown.free_mib == free_mib
    assert shown.smact == pytest.approx(smact, abs=1e-9)


def test_what_the_monitor_takes_off() -> None:
    assert history().at(0.0, Monitor(reserve_mib=512)).free_mib == 39_488


def test_risk_is_above_the_mean_of_an_uneven_window_and_equal_in_an_even_one() -> None:
    risk = Monitor(90.0, 90.0, statistic="risk")
    # 20 of 30 samples at 0.8, the newest ones: mean .533, median .8, p95 .8.
    shown = history().at(120.0, risk).smact
    moving = 0.0
    for value in [0.0] * 10 + [0.8] * 20:
        moving += 2 / 31 * (value - moving)
    assert shown == pytest.approx(0.2 * 0.8 * 2 / 3 + 0.3 * 0.8 + 0.3 * 0.8 + 0.2 * moving)
    steady = History(40_000)
    steady.note(0.0, (0.5, 0.0, 0.0, 0), 1e9)
    assert steady.at(500.0, risk).smact == pytest.approx(0.5)


def test_what_is_too_old_is_forgotten_but_not_what_a_window_needs() -> None:
    long = History(40_000)
    for second in range(1000):
        long.note(float(second), (second % 2 * 1.0, 0.0, 0.0, second), 270.0)
    assert len(long.times) < 400
    shown = long.at(900.0, MONITOR)
    assert shown.free_mib == 39_100 and shown.smact == pytest.approx(0.5, abs=0.02)
