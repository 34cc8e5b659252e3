# SPDX-License-Identifier: Apache-2.0
"""What ended runs of a training tell of the next one: memory and time."""

from dataclasses import replace

import pytest

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.sim.forecast import Forecast
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob
from tests.unit.sim.world import job, play, truth

LEARNS = Setting(depth=50, learn_peaks=True)


def half(one: TraceJob) -> PlaceRequest:
    """An estimate of half of what the job takes."""
    return replace(truth(one), need_mib=one.memory_mib // 2)


def much(one: TraceJob) -> PlaceRequest:
    """An estimator that gives no answer: a whole GPU."""
    return replace(truth(one), need_mib=None, share=False)


def test_a_training_that_ended_once_is_reserved_by_its_peak() -> None:
    jobs = [job(1, name="net"), job(2, 2000.0, name="net"), job(3, 2000.0, name="net")]
    alone = play(jobs, Setting(depth=50), told=much)
    assert alone[3].start_s == pytest.approx(3000.0)
    shared = play(jobs, LEARNS, told=much)
    assert (shared[2].start_s, shared[3].start_s) == (2000.0, 2000.0)


def test_jobs_that_wait_are_told_too() -> None:
    jobs = [job(1, name="net"), *(job(n, 10.0, name="net") for n in (2, 3, 4))]
    assert [play(jobs, LEARNS, told=much)[n].start_s for n in (2, 3, 4)] == [1000.0] * 3


def test_an_estimate_that_was_too_low_is_not_believed_again() -> None:
    # Alone, nobody is in the way of the first; beside one another they do not fit in 39 GiB.
    jobs = [job(1, name="net", memory_mib=24_000)]
    jobs += [job(n, 2000.0, name="net", memory_mib=24_000) for n in (2, 3)]
    assert sum(one.oom for one in play(jobs, Setting(depth=50), told=half).values()) == 1
    assert sum(one.oom for one in play(jobs, LEARNS, told=half).values()) == 0


def test_a_job_without_coloc_is_left_alone() -> None:
    jobs = [job(1, name="net"), job(2, 2000.0, name="net", coloc=False), job(3, 2000.0, name="net")]
    assert play(jobs, LEARNS)[3].start_s == pytest.approx(3000.0)


def test_another_number_of_gpus_is_another_training() -> None:
    jobs = [job(1, name="net"), job(2, 2000.0, name="net", gpus=2), job(3, 2000.0, name="net")]
    found = play(jobs, LEARNS, told=much, gpus="2xa100-40gb")
    assert found[3].start_s == pytest.approx(3000.0)


def seconds(forecast: Forecast, one: TraceJob) -> float:
    found = forecast.expect(one)
    assert found is not None
    return found.run_s


def test_earlier_runs_tell_a_time_with_an_error_that_a_training_keeps() -> None:
    forecast = Forecast(error=0.3, seed="s")
    first = forecast.expect(job(1, name="net", run_s=1000.0))
    assert first is not None and first != 1000.0
    assert forecast.expect(job(2, name="net", run_s=1000.0)) == first
    ratios = [
        seconds(Forecast(error=0.3, seed="s"), job(n, name=f"n{n}", run_s=1.0)) - 1.0
        for n in range(400)
    ]
    wrong = sorted(abs(ratio) for ratio in ratios)
    assert wrong[200] == pytest.approx(0.3, abs=0.06), "the median of the error is as asked for"


def test_an_ended_run_counts_more_than_earlier_ones() -> None:
    forecast = Forecast(error=0.3)
    forecast.learn(job(1, name="net", run_s=500.0))
    assert seconds(forecast, job(2, name="net", run_s=1000.0)) == 500.0


def test_a_time_limit_bounds_what_is_expected() -> None:
    assert seconds(Forecast(error=0.3), job(1, run_s=1000.0, limit_s=1.0)) == 1.0
