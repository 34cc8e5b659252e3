# SPDX-License-Identifier: Apache-2.0
"""The simulator's engine against figures that can be computed by hand."""

from dataclasses import replace

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.core.place.placing import Conditions, Start, View
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.setting import Recovery, Setting
from slurm_coloc.sim.trace import TraceJob
from tests.unit.sim.world import CALM, job, outcome, play, truth

BACKFILL = Setting(depth=50)


def ends(jobs: list[TraceJob], *args: object, **named: object) -> list[float]:
    """When the jobs end, in the order of the trace."""
    return [record.end_s or 0.0 for record in play(jobs, *args, **named).values()]


# ---- two jobs on one GPU, by the formula v = 1 / (1 + 1.1 S^3) --------------------------------


def test_two_equal_jobs_slow_each_other_down_by_the_formula() -> None:
    # S = 0.5 for each: v = 1 / (1 + 1.1 * 0.125) = 1 / 1.1375; used: 0.88 < 1.05.
    assert ends([job(1, smact=0.5), job(2, smact=0.5)]) == pytest.approx([1137.5, 1137.5])


def test_two_busy_jobs_are_bound_by_the_gpus_capacity() -> None:
    # S = 0.9: v = 1 / (1 + 1.1 * 0.729) = 0.5550; used 2 * 0.9 * 0.5550 = 0.999 < 1.05.
    slow = 1 + 1.1 * 0.9**3
    assert ends([job(1, smact=0.9), job(2, smact=0.9)]) == pytest.approx([1000 * slow] * 2)
    # Three of 0.5: S = 1: v = 1 / 2.1; used 1.5 / 2.1 = 0.714. Four of 0.3: S = 0.9, v = 0.555.
    assert ends([job(i, smact=0.5) for i in (1, 2, 3)]) == pytest.approx([2100.0] * 3)
    # 0.9 beside 0.2: v = 1 / (1 + 1.1 * 0.008) and 0.5550; used 0.892 + 0.111 = 1.003.
    # 1.0 beside 0.3: v = 0.9712 and 1 / 2.1; used 0.9712 + 0.1429 = 1.1141 > 1.05: times 0.9425.
    heavy, light = 1 / (1 + 1.1 * 0.027), 1 / 2.1
    shrink = 1.05 / (heavy + 0.3 * light)
    assert shrink == pytest.approx(0.9425, abs=1e-4)
    found = ends([job(1, smact=1.0), job(2, smact=0.3, run_s=100)])
    assert found[1] == pytest.approx(100 / (light * shrink))
    # The heavy one was so fast until then, and is alone for the rest.
    assert found[0] == pytest.approx(found[1] + 1000 - found[1] * heavy * shrink)


def test_a_late_neighbour_slows_only_the_time_together() -> None:
    # Alone until 400; then both at 1 / 1.1375. The first has 600 s to go: 682.5. The second has
    # done 600 by then and is alone for the last 400.
    found = ends([job(1, smact=0.5), job(2, submit_s=400, smact=0.5)])
    assert found == pytest.approx([1082.5, 1482.5])


def test_a_wide_job_is_as_slow_as_on_its_slowest_gpu() -> None:
    jobs = [job(1, gpus=2, smact=0.5), job(2, smact=0.5, run_s=5000)]
    found = ends(jobs, gpus="2xa100-40gb", name="magm")
    assert found[0] == pytest.approx(1137.5)
    assert found[1] == pytest.approx(5000 + 1137.5 - 1000)


def test_streams_take_turns() -> None:
    # GRACT 0.6 each: v = 1 / 1.2.
    jobs = [replace(job(i), activity=Activity(0.5, gract=0.6)) for i in (1, 2)]
    assert ends(jobs, Setting(method="streams")) == pytest.approx([1200.0, 1200.0])


def test_jobs_of_several_users_take_turns_where_an_mps_server_has_one_user() -> None:
    jobs = [replace(job(i, user=f"u{i}"), activity=Activity(0.5, gract=0.6)) for i in (1, 2)]
    assert ends(jobs) == pytest.approx([1137.5, 1137.5])
    assert ends(jobs, Setting(multi_user_mps=False)) == pytest.approx([1200.0, 1200.0])
    same = [replace(one, user="u") for one in jobs]
    assert ends(same, Setting(multi_user_mps=False)) == pytest.approx([1137.5, 1137.5])


# ---- MIG --------------------------------------------------------------------------------------


def test_a_mig_instance_is_as_fast_as_its_sms_and_knows_no_neighbour() -> None:
    # 3g: 42 of 108 SMs; s = 0.5: v = 0.3889 / 0.5 = 0.7778. 4g: 56 of 108, v = 1.
    jobs = [job(1, smact=0.5), job(2, smact=0.5)]
    found = ends(jobs, Setting(method="mig"), gpus="1xa100-40gb:3g.20gb+4g.20gb")
    assert found == pytest.approx([1000 * 0.5 / (42 / 108), 1000.0])


def test_method_mig_has_one_job_an_instance_and_mps_inside_mig_several() -> None:
    jobs = [job(1, smact=0.2), job(2, smact=0.2)]
    layout = "1xa100-40gb:3g.20gb"
    assert ends(jobs, Setting(method="mig"), gpus=layout) == pytest.approx([1000.0, 2000.0])
    # Inside, each keeps 0.2 / 0.3889 = 0.5143 of the instance busy: v = 1 / (1 + 1.1 * 0.5143^3).
    inside = 0.2 / (42 / 108)
    expected = 1000 * (1 + 1.1 * inside**3)
    assert ends(jobs, gpus=layout) == pytest.approx([expected, expected])


def test_mig_without_a_layout_cuts_an_idle_gpu_in_halves_for_jobs_that_fit_one() -> None:
    small, large = 15_000, 25_000
    jobs = [job(1, memory_mib=small, smact=0.5), job(2, memory_mib=small, smact=0.1), job(3)]
    found = ends(jobs, Setting(method="mig"))
    # 1 and 2 have a half each, the third waits for the first half that is free.
    assert found[1] == pytest.approx(1000.0)
    assert found[0] == pytest.approx(1000 * 0.5 / (42 / 108))
    assert found[2] == pytest.approx(2000.0)
    # One that needs more than a half has all seven slices (98 SMs) and no neighbour.
    jobs = [job(1, memory_mib=large, smact=1.0), job(2, memory_mib=small)]
    found = ends(jobs, Setting(method="mig"))
    assert found == pytest.approx([1000 * 108 / 98, 1000 * 108 / 98 + 1000])


def test_compute_instances_have_their_own_sms_and_one_memory() -> None:
    layout = "1xa100-40gb:7g.40gb/3c/3c"
    both = [job(1, smact=0.5, memory_mib=15_000), job(2, smact=0.5, memory_mib=15_000)]
    setting, speed = Setting(method="mig"), (42 / 108) / 0.5
    assert ends(both, setting, gpus=layout) == pytest.approx([1000 / speed, 1000 / speed])
    full = [replace(one, memory_mib=25_000) for one in both]
    assert ends(full, setting, gpus=layout) == pytest.approx([1000 / speed, 2000 / speed])


def test_wide_jobs_never_get_two_parts_of_one_gpu() -> None:
    setting = replace(BACKFILL, record=True)
    layout = "2xa100-40gb:3g.20gb+4g.20gb"
    found = outcome([job(1, gpus=2)], setting, gpus=layout)
    assert sorted(piece.slot for piece in found.pieces) == [0, 2]
    with pytest.raises(UsageFault, match="3 GPUs, there are 2"):
        outcome([job(1, gpus=3)], setting, gpus=layout)


def test_whole_gpu_jobs_take_whole_gpus_beside_mig() -> None:
    setting = replace(BACKFILL, record=True)
    found = outcome([job(1, coloc=False)], setting, gpus="2xa100-40gb:3g.20gb+3g.20gb@1")
    assert [piece.slot for piece in found.pieces] == [0]
    # Where there is none, the largest instance for itself.
    found = outcome([job(1, coloc=False), job(2)], setting, gpus="1xa100-40gb:1g.5gb+4g.20gb")
    assert [piece.slot for piece in found.pieces] == [1, 1]


# ---- nodes, owners, pools -----------------------------------------------------------------------


def test_jobs_wait_for_the_cpus_and_memory_of_nodes() -> None:
    jobs = [job(i, cpus=8, host_mib=1000) for i in (1, 2, 3)]
    two = "2xa100-40gb"
    assert ends(jobs, gpus=two) == pytest.approx([1000.0] * 3)
    assert ends(jobs, Setting(node_cpus=16), gpus=two) == pytest.approx([1000.0, 1000.0, 2000.0])
    assert ends(jobs, Setting(node_host_mib=1500), gpus=two) == pytest.approx([1000, 2000, 3000])
    with pytest.raises(UsageFault, match="job 1 asks for 8 CPUs, a node has 4"):
        ends(jobs, Setting(node_cpus=4), gpus=two)


def test_a_job_over_two_nodes_takes_its_cpus_from_both() -> None:
    jobs = [job(1, gpus=4, cpus=16), job(2, cpus=8), job(3, cpus=8)]
    found = ends(jobs, Setting(node_cpus=16, depth=50), gpus="2x2xa100-40gb")
    assert found == pytest.approx([1000.0, 1000.0, 1000.0])
    found = ends(jobs, Setting(node_cpus=8, depth=50), gpus="2x2xa100-40gb")
    assert found == pytest.approx([1000.0, 2000.0, 2000.0])


@pytest.mark.parametrize(
    ("share_with", "last"), [("user", 2000.0), ("account", 1000.0), ("anyone", 1000.0)]
)
def test_who_may_share(share_with: str, last: float) -> None:
    jobs = [job(1, user="a", account="x"), job(2, user="b", account="x")]
    conditions = Conditions(share_with=share_with)  # type: ignore[arg-type]
    assert ends(jobs, Setting(conditions)) == pytest.approx([1000.0, last])


def test_jobs_that_share_stay_in_the_pool_and_whole_gpus_come_from_outside_first() -> None:
    setting = replace(BACKFILL, pool=1, record=True)
    jobs = [job(1, coloc=False), job(2), job(3), job(4, memory_mib=30_000), job(5, coloc=False)]
    found = outcome(jobs, setting, gpus="2xa100-40gb")
    at = {piece.job_id: (piece.slot, piece.start_s) for piece in found.pieces}
    assert at[1] == (1, 0.0) and at[2] == at[3] == (0, 0.0)
    # 4 shares, so it waits for the pool although the other GPU is free at the same time.
    assert at[4][0] == 0 and at[5] == (1, 1000.0)


def test_without_a_pool_all_gpus_are_whole() -> None:
    jobs = [job(1), job(2)]
    assert ends(jobs, Setting(pool=0)) == pytest.approx([1000.0, 2000.0])


def test_a_job_that_no_pool_gpu_holds_gets_a_whole_one() -> None:
    jobs = [job(1, memory_mib=39_990), job(2)]
    assert ends(jobs) == pytest.approx([1000.0, 2000.0])


def test_a_launch_holds_a_gpu_and_slows_nobody() -> None:
    setting = Setting(launch_s=50.0, ramp_s=40.0)
    # The second is there from 400 and works from 450: the first has done 400 by then, and both
    # go on at 1 / 1.1375.
    found = ends([job(1, smact=0.5), job(2, submit_s=400, smact=0.5)], setting)
    assert found[0] == pytest.approx(450 + (1000 - 400) * 1.1375)
    # Its limit runs from its start, its memory comes after its launch, and it draws nothing.
    assert outcome([job(1, limit_s=600)], setting).records[0].end_s == pytest.approx(600)
    crash = play([job(n, memory_mib=25_000) for n in (1, 2)], replace(RISKY, launch_s=50.0))
    assert crash[2].ran_s == pytest.approx(90 + 1050)
    power, drawn = setting.power, outcome([job(1, smact=0.5)], setting).joules
    assert drawn == pytest.approx(50 * power.idle_w + 1000 * power.watts(0.5))


# ---- time limits -------------------------------------------------------------------------------


def test_a_job_ends_at_its_limit() -> None:
    found = outcome([job(1, limit_s=600)])
    assert (found.timeouts, found.shared_timeouts) == (1, 0)
    assert found.records[0].end_s == pytest.approx(600) and found.records[0].timed_out


def test_a_limit_grows_with_the_slowdown_that_is_expected() -> None:
    jobs = [job(i, smact=0.5, limit_s=1050) for i in (1, 2)]
    found = outcome(jobs)
    assert found.timeouts == 0 and found.makespan_s == pytest.approx(1137.5)
    found = outcome(jobs, Setting(stretch=False))
    # Both are cut off at 1050 although alone they had ended in time.
    assert (found.timeouts, found.shared_timeouts) == (2, 2)
    assert found.makespan_s == pytest.approx(1050)


def test_a_limit_that_cannot_grow_closes_the_gpu() -> None:
    jobs = [job(i, smact=0.5, limit_s=1050) for i in (1, 2)]
    found = outcome(jobs, Setting(max_limit_s=1100))
    assert found.timeouts == 0 and found.makespan_s == pytest.approx(2000)
    found = outcome(jobs, Setting(max_limit_s=1200))
    assert found.timeouts == 0 and found.makespan_s == pytest.approx(1137.5)


def test_a_scheduler_that_expects_too_little_slowdown_makes_jobs_time_out() -> None:
    def calm(one: TraceJob) -> PlaceRequest:
        return replace(truth(one), activity=Activity(CALM))

    jobs = [job(i, smact=0.5, limit_s=1050) for i in (1, 2)]
    found = outcome(jobs, told=calm)
    assert found.shared_timeouts == 2 and found.makespan_s == pytest.approx(1050)


# ---- out of memory -------------------------------------------------------------------------------

RISKY = Setting(Conditions(by_plan=False), recovery=Recovery(delay_s=10.0), ramp_s=40.0, depth=50)


def test_of_two_whose_memory_comes_at_once_the_later_launched_crashes() -> None:
    for order in ((1, 2), (2, 1)):
        jobs = [job(number, memory_mib=25_000) for number in order]
        found = play(jobs, RISKY)
        first, second = order
        assert (found[first].oom, found[second].oom) == (0, 1)
        assert found[first].end_s == pytest.approx(1000)
        assert found[second].end_s == pytest.approx(2000)
        assert found[second].ran_s == pytest.approx(1040)


def test_a_wide_job_crashes_where_one_of_its_gpus_is_full() -> None:
    jobs = [job(1, memory_mib=30_000), job(2, submit_s=100, gpus=2, memory_mib=20_000)]
    found = play(jobs, RISKY, gpus="2xa100-40gb")
    assert (found[1].oom, found[2].oom) == (0, 1)
    # Its retry waits for two idle GPUs.
    assert found[2].end_s == pytest.approx(2000)


def test_a_fence_lets_the_one_crash_that_takes_more_than_it_reserved() -> None:
    def low(one: TraceJob) -> PlaceRequest:
        return replace(truth(one), need_mib=8_000)

    jobs = [job(1, memory_mib=9_000), job(2, memory_mib=8_000)]
    setting = Setting(fence=True, recovery=Recovery(more_mib=(5000,)), ramp_s=40.0)
    found = play(jobs, setting, told=low)
    assert (found[1].oom, found[2].oom) == (1, 0)
    assert found[1].end_s == pytest.approx(45 + 1000)
    assert play(jobs, replace(setting, fence=False), told=low)[1].oom == 0


def test_recovery_asks_for_more_step_by_step_and_then_for_a_whole_gpu() -> None:
    def low(one: TraceJob) -> PlaceRequest:
        return replace(truth(one), need_mib=1_000 if one.id == 1 else one.memory_mib)

    rule = Recovery(delay_s=0.0, more_mib=(5000, 10000))
    setting = Setting(fence=True, recovery=rule, ramp_s=40.0)
    found = play([job(1, memory_mib=20_000)], setting, told=low)
    # 1000, 6000, 16000 are too little: three crashes after 40 s each, then it is alone.
    assert found[1].oom == 3 and found[1].tries == 4
    assert found[1].end_s == pytest.approx(120 + 1000)
    assert found[1].request is not None and not found[1].request.share


def test_a_job_that_kept_to_its_reservation_is_forgiven() -> None:
    def low(one: TraceJob) -> PlaceRequest:
        return replace(truth(one), need_mib=10_000)

    # The first one's excess crashes the second at 145; it has ended when that comes back at 150.
    jobs = [job(1, run_s=149, memory_mib=35_000), job(2, submit_s=100, memory_mib=9_000)]
    strict = play(jobs, told=low)
    kind = play(jobs, Setting(recovery=Recovery(forgiven=1)), told=low)
    assert strict[2].request is not None and not strict[2].request.share
    assert (
        kind[2].request is not None and kind[2].request.share and kind[2].request.need_mib == 10_000
    )


def test_a_job_larger_than_any_gpu_runs_alone() -> None:
    # The trace says that it ran, so somebody's figure is wrong; it must not loop for ever.
    for told in (truth, lambda one: replace(truth(one), need_mib=None)):
        jobs = [job(1, memory_mib=50_000), job(2)]
        assert ends(jobs, BACKFILL, told=told)[0] == pytest.approx(1000.0)


# ---- the rest ------------------------------------------------------------------------------------


def test_energy_of_idle_and_busy_gpus() -> None:
    setting = Setting()
    found = outcome([job(1, smact=0.5, run_s=1000)], setting, gpus="2xa100-40gb")
    power = setting.power
    assert found.joules == pytest.approx(1000 * (power.watts(0.5) + power.idle_w))


def test_the_same_job_twice_is_refused() -> None:
    with pytest.raises(UsageFault, match="stands there twice"):
        outcome([job(1), job(1)])


def test_a_policy_that_answers_nonsense_makes_no_figures() -> None:
    class Bad:
        name = "bad"

        def next(self, view: View) -> Start | None:
            return Start(view.queue[0], (view.slots[0],)) if view.queue else None

    jobs = [job(1, coloc=False), job(2)]
    simulation = Simulation(jobs, parse_machine("1xa100-40gb"), Bad(), Setting(), truth)
    with pytest.raises(AssertionError, match="bad: job 2 cannot start there"):
        simulation.run()
