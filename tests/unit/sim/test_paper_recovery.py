# SPDX-License-Identifier: Apache-2.0
"""An out-of-memory in the simulator, as the thesis' server has it: who crashes, what comes then."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.outcome import Record
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.setting import Pace, Recovery, Setting
from slurm_coloc.sim.telemetry import Monitor
from slurm_coloc.sim.trace import TraceJob

BLIND = Setting(
    conditions=Conditions(by_plan=False, idle_first=True),
    recovery=Recovery(delay_s=5.0, joinable=True),
    ramp_s=45.0,
)


def job(number: int, submit_s: float, run_s: float, memory_mib: int) -> TraceJob:
    # So little activity that nobody slows anybody down.
    return TraceJob(number, f"j{number}", submit_s, 1, run_s, memory_mib, Activity(0.001))


def play(jobs: list[TraceJob], setting: Setting = BLIND, told: bool = False) -> Sequence[Record]:
    def request(one: TraceJob) -> PlaceRequest:
        need = one.memory_mib if told else None
        return PlaceRequest(one.id, one.gpus, need, one.activity, one.submit_s)

    machine = parse_machine("1xa100-40gb")
    return Simulation(jobs, machine, policy("magm"), setting, request).run().records


def test_the_newcomer_crashes_and_then_runs_its_whole_time() -> None:
    first, second = play([job(1, 0, 1000, 30000), job(2, 100, 2000, 20000)])
    assert (first.oom, second.oom) == (0, 1)
    # The first one had 900 s to go: then the GPU is idle. The end that the crashed run was to have
    # comes before that of the new run and must not end it.
    assert first.end_s == pytest.approx(1000, abs=0.1)
    assert second.end_s == pytest.approx(3000, abs=0.1)
    assert second.last_s == pytest.approx(2000, abs=0.1)


def test_a_recovered_job_goes_first_on_an_idle_gpu_and_others_may_join_it() -> None:
    first, second, third = play(
        [job(1, 0, 1000, 30000), job(2, 100, 400, 20000), job(3, 200, 100, 9000)]
    )
    assert (first.oom, second.oom, third.oom) == (0, 1, 0)
    # Strict order: the third one would fit beside the first but waits for its turn.
    assert third.start_s == pytest.approx(1000, abs=0.1)
    assert third.end_s == pytest.approx(1100, abs=0.1)
    assert second.end_s == pytest.approx(1400, abs=0.1)


def test_two_launches_in_one_window_of_telemetry_land_on_the_same_free_memory() -> None:
    setting = replace(
        BLIND,
        conditions=Conditions(by_plan=False, margin_mib=2000, idle_first=True),
        pace=Pace(idle_s=35.0, shared_s=65.0, asleep=True),
    )
    jobs = [job(1, 0, 5000, 15000), job(2, 880, 900, 20000), job(3, 881, 900, 20000)]
    stale = play(jobs, setting, told=True)
    fresh = play(jobs, replace(setting, monitor=Monitor(90.0, 1.0)), told=True)
    assert [one.oom for one in stale] == [0, 0, 1]
    assert [one.oom for one in fresh] == [0, 0, 0]


def test_nobody_joins_a_gpu_before_telemetry_has_shown_its_last_launch() -> None:
    careful = replace(
        BLIND,
        conditions=Conditions(by_plan=False, margin_mib=2000, idle_first=True),
        monitor=Monitor(30.0, 10.0),
        settle=True,
    )
    jobs = [job(1, 0, 900, 30000), job(2, 1, 900, 20000)]
    assert [one.oom for one in play(jobs, careful, told=True)] == [0, 0]
    assert [one.oom for one in play(jobs, replace(careful, settle=False), told=True)] == [0, 1]


def test_a_scheduler_that_sleeps_is_late_for_what_it_could_start_at_once() -> None:
    sleepy = replace(BLIND, pace=Pace(idle_s=35.0, shared_s=65.0, asleep=True))
    first, second = play([job(1, 0, 100, 30000), job(2, 1, 100, 5000)], sleepy)
    assert first.start_s == 35
    assert second.start_s == 70
    alone = [job(1, 0, 100, 30000), job(2, 500, 100, 5000)]
    assert play(alone, sleepy)[1].start_s == 535
