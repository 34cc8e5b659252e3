# SPDX-License-Identifier: Apache-2.0
"""Steered placement in a simulation: Slurm's part, and colocd's polls, pins, gate and plan."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from slurm_coloc.core.place.gpu_slot import INF
from slurm_coloc.core.place.placing import View
from slurm_coloc.core.place.steering import Rules
from slurm_coloc.errors import UsageFault
from slurm_coloc.planning.schedules.native import built
from slurm_coloc.policies import fresh, policy
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.outcome import Record
from slurm_coloc.sim.polled import Knows, Times
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.steered import Steered, steered_assumes, steered_setting
from slurm_coloc.sim.trace import TraceJob
from tests.unit.sim.world import job, truth

searches = pytest.mark.skipif(not built(), reason="its search was not built: no C compiler")
RULES = Rules(policy="auto", max_pin_s=INF, share_with="anyone")


def steered(*, plans: bool = False, **rules: object) -> Steered:
    return Steered(policy("auto"), replace(RULES, **rules), Times(), plans)  # type: ignore[arg-type]


def play(
    jobs: Sequence[TraceJob], gpus: str, how: Steered, setting: Setting | None = None
) -> dict[int, Record]:
    world = steered_setting(setting or Setting(expect_runs=False), how)
    outcome = Simulation(jobs, parse_machine(gpus), how, world, truth).run()
    return {record.job.id: record for record in outcome.records}


def start_s(record: Record) -> float:
    assert record.start_s is not None
    return record.start_s


def test_nobody_joins_a_busy_gpu_until_the_site_lets_it() -> None:
    """The newcomer fits by plan, and Slurm alone would start it at once."""
    jobs = [job(1, smact=0.9, run_s=2000), job(2, submit_s=300, smact=0.1)]
    assert start_s(play(jobs, "1xa100-40gb", steered())[2]) >= 2000
    assert start_s(play(jobs, "1xa100-40gb", steered(smact_gate=1.0))[2]) < 310
    given_up = start_s(play(jobs, "1xa100-40gb", steered(max_pin_s=300.0))[2])
    assert 600 <= given_up < 650


def test_a_pin_names_the_gpu_and_its_node() -> None:
    """Of two nodes the second has the idle GPU; first fit would take the first node's."""
    jobs = [job(1, smact=0.5), job(2, submit_s=200, smact=0.1)]
    found = play(jobs, "2x1xa100-40gb", steered(idle_first=True), Setting(record=True))
    assert start_s(found[2]) < 210 and found[1].end_s == 1000  # nobody slowed it down


def test_two_users_never_meet_where_the_site_says_so() -> None:
    jobs = [
        job(1, user="ada", smact=0.3, run_s=2000),
        job(2, submit_s=100, user="ada", smact=0.1, run_s=100),
        job(3, submit_s=300, user="ben", smact=0.1, run_s=100),
    ]
    apart = play(jobs, "1xa100-40gb", steered(share_with="user"))
    assert start_s(apart[2]) < 110 and start_s(apart[3]) >= 2000
    assert start_s(play(jobs, "1xa100-40gb", steered())[3]) < 310


def test_in_strict_order_a_job_without_room_holds_back_all_behind() -> None:
    jobs = [
        job(1, memory_mib=30_000, run_s=900),
        job(2, submit_s=50, memory_mib=30_000),
        job(3, submit_s=60, memory_mib=4_000, run_s=60),
    ]
    assert start_s(play(jobs, "1xa100-40gb", steered())[3]) >= 900
    backfill = Setting(depth=10, expect_runs=False)
    assert start_s(play(jobs, "1xa100-40gb", steered(), backfill)[3]) < 70


@searches
def test_a_plan_lets_the_first_one_wait_for_its_equal() -> None:
    """The second job has no room for as long as the first one runs; the third has."""
    jobs = [
        job(1, memory_mib=30_000, run_s=900, smact=0.3),
        job(2, submit_s=50, memory_mib=30_000, smact=0.3),
        job(3, submit_s=60, memory_mib=4_000, run_s=60, smact=0.3),
    ]
    known = Setting(expect_runs=False, logs=1.0)
    assert start_s(play(jobs, "1xa100-40gb", steered(plans=True, reorder=True), known)[3]) < 200


def test_a_run_leaves_nothing_to_the_next() -> None:
    jobs = [job(n, submit_s=20.0 * n, smact=0.4) for n in range(1, 7)]
    how = steered()
    first = [one.start_s for one in play(jobs, "2xa100-40gb", fresh(how)).values()]  # type: ignore[arg-type]
    again = [one.start_s for one in play(jobs, "2xa100-40gb", fresh(how)).values()]  # type: ignore[arg-type]
    assert first == again


@pytest.mark.parametrize(("share_with", "beside"), [("user", False), ("anyone", True)])
def test_a_job_of_several_gpus_is_pinned_to_none(share_with: str, beside: bool) -> None:
    """Where its pin alone keeps a job from other users it has whole GPUs, as colocd says."""
    jobs = [
        job(1, gpus=2, user="ada", smact=0.3, run_s=2000),
        job(2, submit_s=100, user="ada", smact=0.1, run_s=100),
    ]
    how = steered(share_with=share_with)
    found = play(jobs, "2xa100-40gb", how)
    assert (start_s(found[2]) < 110) == beside
    said = steered_assumes(steered_setting(Setting(), how), how)
    assert ("jobs of several GPUs get whole ones" in said[-1]) != beside


def test_mig_devices_are_not_pinned() -> None:
    with pytest.raises(UsageFault, match="steered: colocd pins jobs to GPUs"):
        play([job(1)], "1xa100-40gb:3g.20gb+4g.20gb", steered())


def test_what_it_takes_for_granted_is_said() -> None:
    how = steered(plans=True)
    (said,) = steered_assumes(steered_setting(Setting(), how), how)[:1]
    assert "gate at 80%" in said and "each job's SM activity" in said
    if built():
        assert "75%" in said
    none = steered(smact_gate=1.0)
    assert "gate" not in steered_assumes(steered_setting(Setting(), none), none)[0]


@searches
def test_what_a_neighbour_did_is_not_taken_for_a_job_s_own() -> None:
    """Telemetry is a mean: it holds a neighbour that has just left, and the time before a job
    works."""
    jobs = [
        job(1, smact=0.5, run_s=3000),
        job(2, submit_s=400, smact=0.4, run_s=300),
        job(3, submit_s=10, memory_mib=36000),  # it waits to the end
    ]
    ids = (1, 2, 3)
    knows = Knows(dict.fromkeys(ids, 0.5), dict.fromkeys(ids, 1000), {one: str(one) for one in ids})
    rules = replace(RULES, reorder=True)
    how = Steered(policy("auto"), rules, Times(), plans=True, knows=knows)
    seen: list[float] = []
    note = how._polled.measure

    def measure(view: View) -> None:
        note(view)
        seen.extend(how._polled._alone.get(name, 0.5) for name in ("1", "2"))

    how._polled.measure = measure  # type: ignore[method-assign]
    found = play(jobs, "1xa100-40gb", how, Setting(launch_s=40.0))
    assert start_s(found[2]) < 500, "it joined"
    assert "1" in how._polled._alone and {round(one, 6) for one in seen} == {0.5}
