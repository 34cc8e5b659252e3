# SPDX-License-Identifier: Apache-2.0
"""What is known of run times once jobs run: their logs, and runs that they have outlived."""

from dataclasses import replace

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.sim.forecast import FIRST, FIRST_S, LONGER, Forecast, Logs
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.policies import LOGS, PLANNED, best_policy, best_setting, policy
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, play
from slurm_coloc.sim.trace import TraceJob


def job(number: int, run_s: float, name: str = "net", limit_s: float | None = None) -> TraceJob:
    return TraceJob(number, name, number * 60.0, 1, run_s, 8000, Activity(0.5), limit_s=limit_s)


def test_a_log_tells_after_its_first_lines() -> None:
    logs = Logs(1.0)
    long, short = job(1, 10_000.0), job(2, 100.0)
    assert logs.read(long, FIRST * 10_000.0 - 1.0) is None
    assert logs.read(short, FIRST_S - 1.0) is None
    told = logs.read(long, FIRST * 10_000.0)
    assert told is not None and told.run_s == pytest.approx(10_000.0, rel=0.25)
    assert told.run_s != 10_000.0
    half = logs.read(long, 5000.0)
    off = (told.run_s - 10_000.0) / 9500.0
    assert half is not None and half.run_s == pytest.approx(10_000.0 + 5000.0 * off), (
        "of what is left"
    )
    late = logs.read(long, 13_000.0)
    assert late is not None and late.run_s >= 13_000.0, "no run is over before now"


def test_some_trainings_tell_nothing_and_always_the_same() -> None:
    names = [f"net{n}" for n in range(400)]
    told = {name for name in names if Logs(0.75, "s").read(job(1, 1e4, name), 5e3)}
    assert 0.65 < len(told) / len(names) < 0.85
    assert told == {name for name in names if Logs(0.75, "s").read(job(2, 9e3, name), 5e3)}
    assert not any(Logs(0.0).read(job(1, 1e4, name), 5e3) for name in names)


def test_a_running_job_is_known_and_tells_of_those_like_it() -> None:
    forecast = Forecast(guesses=True, logs=Logs(1.0))
    going = [(job(1, 9000.0, "vgg16|imagenet|bs32"), 1000.0)]
    assert forecast.news(going) and not forecast.news(going)
    known = forecast.expect(going[0][0], going)
    assert known is not None and known.run_s == pytest.approx(9000.0, rel=0.25)
    like = forecast.expect(job(2, 1.0, "vgg16|imagenet|bs64"), going)
    silent = Forecast(guesses=True).expect(job(2, 1.0, "vgg16|imagenet|bs64"), going)
    assert like is not None and silent is not None
    assert abs(like.run_s - 9000.0) < abs(silent.run_s - 9000.0)


def test_a_log_says_no_more_than_the_limit() -> None:
    forecast = Forecast(logs=Logs(1.0))
    mine = job(1, 9000.0, limit_s=5000.0)
    found = forecast.expect(mine, [(mine, 1000.0)])
    assert found is not None and found.run_s == 5000.0


def test_runs_that_a_job_has_outlived_tell_nothing() -> None:
    """One name with 20 epochs and with 50."""
    forecast = Forecast()
    forecast.learn(job(1, 200.0))
    forecast.learn(job(2, 500.0))
    mine = job(3, 500.0)
    both = forecast.expect(mine)
    assert both is not None and both.run_s == 350.0 and both.spread > 0.3
    late = forecast.expect(mine, [(mine, 250.0)])
    assert late is not None and late.run_s == 500.0 and late.spread < 0.1
    beyond = forecast.expect(mine, [(mine, 600.0)])
    assert beyond is not None and beyond.run_s == 600.0 * LONGER


def test_logs_are_read_with_best_alone_unless_asked_for() -> None:
    assert best_setting(Setting(), 4).logs == LOGS
    assert best_setting(Setting(logs=0.0), 4).logs == 0.0
    assert not best_setting(Setting(logs=1.0), PLANNED + 1).logs
    jobs = [job(n, 600.0 + 100.0 * (n % 5), f"net{n % 7}") for n in range(20)]
    machine = parse_machine("2xa100-40gb")
    first = Experiment(jobs, machine, policy("first-fit"), Setting(depth=50))
    read = replace(first, setting=replace(first.setting, logs=1.0))
    assert play(first)[0].figures() == play(read)[0].figures(), "first fit asks for no run time"
    setting = best_setting(Setting(), machine.gpus)
    best = Experiment(jobs, machine, best_policy(), setting)
    assert play(best)[0].figures() == play(best)[0].figures()


def test_another_limit_is_another_length() -> None:
    """The same training for more epochs, with the limit that its user set for them."""
    forecast = Forecast(guesses=True)
    for number in range(3):
        forecast.learn(job(number, 1000.0, limit_s=2000.0))
    same, longer = (forecast.expect(job(9, 1.0, limit_s=limit)) for limit in (2000.0, 20_000.0))
    assert same is not None and same.run_s == 1000.0
    assert longer is not None and longer.run_s == pytest.approx(10_000.0, rel=0.2)
