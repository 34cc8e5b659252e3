# SPDX-License-Identifier: Apache-2.0
"""Which waiting job starts next: strict order, backfill, wide jobs, a pool."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.backfill import reservation
from slurm_coloc.core.place.free_at import free_at
from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest, Resident
from slurm_coloc.core.place.placing import Start, View
from slurm_coloc.core.place.queue_discipline import first_that_starts
from slurm_coloc.policies import policy
from slurm_coloc.sim.setting import Setting
from tests.unit.sim.world import job, outcome, play

CALM = Activity(0.001)


def request(
    number: int, gpus: int = 1, need_mib: int | None = 8000, **more: object
) -> PlaceRequest:
    return PlaceRequest(number, gpus, need_mib, more.pop("activity", CALM), 0.0, **more)  # type: ignore[arg-type]


def slots(*nodes: int) -> list[GpuSlot]:
    """GPUs of these nodes."""
    return [GpuSlot(i, node, "a100-40gb", 39_936) for i, node in enumerate(nodes)]


def put(slot: GpuSlot, one: PlaceRequest, ends_s: float | None) -> None:
    slot.residents.append(Resident(one, ends_s, None if ends_s is None else ends_s))
    slot.reserved_mib += slot.usable_mib if one.need_mib is None else one.need_mib
    slot.smact += 0.0 if one.activity is None else one.activity.smact
    slot.whole = slot.whole or not one.share


def started(view: View, idle_only: bool = False) -> tuple[int, list[int]] | None:
    found: Start | None = first_that_starts(view, lambda a, s, v: (s.index,), idle_only)
    return None if found is None else (found.request.id, [slot.index for slot in found.slots])


def whole(number: int, gpus: int = 1, **more: object) -> PlaceRequest:
    return request(number, gpus, None, share=False, **more)


def test_a_wide_job_gets_one_node_and_several_only_if_none_is_so_large() -> None:
    four = slots(0, 0, 1, 1)
    put(four[0], whole(9), 100.0)
    assert started(View(0.0, [whole(1, 2)], four)) == (1, [2, 3])
    assert started(View(0.0, [whole(1, 3)], four)) == (1, [1, 2, 3])
    put(four[3], whole(8), 100.0)
    assert started(View(0.0, [whole(1, 2)], four)) is None


def test_strict_order_waits_and_backfill_does_not() -> None:
    two = slots(0, 0)
    put(two[0], whole(9), 100.0)
    queue = [whole(1, 2), whole(2, run_s=50.0)]
    assert started(View(0.0, queue, two, depth=1)) is None
    assert started(View(0.0, queue, two, depth=2)) == (2, [1])


@pytest.mark.parametrize(("run_s", "starts"), [(100.0, True), (100.1, False), (None, False)])
def test_a_later_job_must_have_ended_when_the_first_one_starts(
    run_s: float | None, starts: bool
) -> None:
    two = slots(0, 0)
    put(two[0], whole(9), 100.0)
    view = View(0.0, [whole(1, 2), whole(2, run_s=run_s)], two, depth=9)
    assert (started(view) is not None) is starts


def test_seats_that_are_not_kept_are_free_to_all() -> None:
    four = slots(0, 0, 1, 1)
    put(four[0], whole(9), 100.0)
    put(four[2], whole(8), 200.0)
    # Node 0 is free first, so the idle GPU of node 1 is not kept.
    view = View(0.0, [whole(1, 2), whole(2)], four, depth=9)
    assert started(view) == (2, [3])
    held = reservation(view.queue[0], view)
    assert held is not None and (held.slots, held.start_s) == ({0, 1}, 100.0)


def test_a_newcomer_may_share_a_kept_gpu_beside_the_first_one() -> None:
    one = slots(0)
    put(one[0], request(9, need_mib=20_000), 100.0)
    first = request(1, need_mib=25_000)
    assert started(View(0.0, [first, request(2, need_mib=14_000)], one, depth=9)) == (2, [0])
    assert started(View(0.0, [first, request(2, need_mib=15_000)], one, depth=9)) is None
    short = request(2, need_mib=15_000, run_s=99.0)
    assert started(View(0.0, [first, short], one, depth=9)) == (2, [0])


def test_nobody_slows_down_whom_the_first_one_waits_for() -> None:
    one = slots(0)
    busy = Activity(0.5)
    put(one[0], request(9, need_mib=20_000, activity=busy), 100.0)
    first = request(1, need_mib=25_000)
    later = request(2, need_mib=10_000, activity=busy)
    assert started(View(0.0, [first, later], one, depth=9)) is None
    # On a job that ends in time although it is slowed down it may.
    two = slots(0, 0)
    put(two[0], request(9, need_mib=20_000, activity=busy), 100.0)
    put(two[1], whole(8), 500.0)
    wide = replace(first, gpus=2)
    assert started(View(0.0, [wide, later], two, depth=9)) == (2, [0])


def test_where_nobody_knows_the_ends_gpus_are_kept_for_wide_jobs_only() -> None:
    two = slots(0, 0)
    put(two[0], whole(9), None)
    view = View(0.0, [whole(1, 2), whole(2, run_s=1.0)], two, depth=9)
    assert started(view) is None
    large = request(1, need_mib=39_000)
    put(two[1], request(8, need_mib=5_000), None)
    assert started(View(0.0, [large, request(2)], two, depth=9)) == (2, [1])


def test_with_a_pool_each_sort_of_job_has_a_first_one() -> None:
    three = slots(0, 0, 0)
    three[0].pool = True
    three[1].pool = three[2].pool = False
    put(three[0], request(9, need_mib=30_000), 1000.0)
    put(three[1], whole(8), 500.0)
    queue = [request(1, need_mib=20_000), whole(2, 2), whole(3, run_s=600.0)]
    # 1 waits for the pool; 2 for both others, so 3 would delay it; a shorter one would not.
    view = View(0.0, queue, three, depth=9, pooled=True)
    assert started(view) is None
    queue[2] = whole(3, run_s=400.0)
    assert started(View(0.0, queue, three, depth=9, pooled=True)) == (3, [2])


def test_when_a_seat_is_free() -> None:
    one = slots(0)[0]
    view = View(0.0, [], [one])
    assert free_at(request(1), one, view) == -INF
    assert free_at(request(1, need_mib=40_000), one, view) is None
    put(one, request(8, need_mib=20_000), 300.0)
    put(one, request(9, need_mib=15_000), 100.0)
    assert free_at(request(1, need_mib=19_000), one, view) == 100.0
    assert free_at(request(1, need_mib=25_000), one, view) == 300.0
    assert free_at(whole(1), one, view) == 300.0
    assert free_at(request(1), one, view, idle_only=True) == 300.0


# ---- played -------------------------------------------------------------------------------------


def test_backfill_in_a_trace() -> None:
    jobs = [
        job(1, 0, 100, gpus=1, coloc=False, limit_s=100),
        job(2, 1, 100, gpus=2, coloc=False, limit_s=100),
        job(3, 2, 90, coloc=False, limit_s=98),
        job(4, 3, 90, coloc=False, limit_s=200),
    ]
    fifo = play(jobs, Setting(), gpus="2xa100-40gb")
    assert [fifo[i].start_s for i in (1, 2, 3, 4)] == [0, 100, 200, 200]
    fill = play(jobs, Setting(depth=50), gpus="2xa100-40gb")
    # 3 fits the gap by its limit, 4 does not.
    assert [fill[i].start_s for i in (1, 2, 3, 4)] == [0, 100, 2, 200]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["exclusive", "magm", "first-fit", "best-fit"]))
def test_backfill_never_delays_a_first_job_beyond_its_reservation(seed: int, name: str) -> None:
    """With limits that are true, nobody starts later than the first reservation that he had."""
    from random import Random

    rng = Random(seed)
    jobs = []
    for number in range(rng.randint(3, 25)):
        run_s = float(rng.randint(10, 2000))
        jobs.append(
            job(
                number,
                float(rng.randint(0, 1500)),
                run_s,
                rng.randint(1000, 38_000),
                rng.uniform(0.05, 0.95),
                rng.choice((1, 1, 1, 2, 4)),
                limit_s=run_s,
                coloc=rng.random() < 0.7,
            )
        )
    promised: dict[int, float] = {}

    class Watched:
        def __init__(self) -> None:
            self.name = name

        def next(self, view: View) -> Start | None:
            found = policy(name).next(view)
            if found is None and len(view.queue):
                held = reservation(view.queue[0], view, name == "exclusive")
                if held is not None and held.start_s < INF:
                    promised.setdefault(held.request.id, held.start_s)
            return found

    from slurm_coloc.sim.engine import Simulation
    from slurm_coloc.sim.machine import parse_machine
    from tests.unit.sim.world import truth

    setting = Setting(depth=50, expect_runs=False)
    done = Simulation(jobs, parse_machine("1x4xa100-40gb"), Watched(), setting, truth).run()
    for record in done.records:
        if record.job.id in promised:
            assert record.start_s is not None
            assert record.start_s <= promised[record.job.id] + 1e-3


def test_fair_share_lets_a_user_who_had_less_go_first() -> None:
    from slurm_coloc.sim.setting import Priority

    hog = [job(i, 0, 1000, coloc=False, user="hog") for i in range(1, 5)]
    jobs = [*hog, job(9, 500, 1000, coloc=False, user="new")]
    by_arrival = play(jobs)
    assert by_arrival[9].start_s == 4000
    by_share = play(jobs, Setting(priority=Priority(age_weight=0.0)))
    assert by_share[9].start_s == 1000
    # Age alone is arrival.
    by_age = play(jobs, Setting(priority=Priority(share_weight=0.0)))
    assert by_age[9].start_s == 4000


def test_a_job_that_overtakes_a_reservation_is_tried_again() -> None:
    """Job 3 could not start on the idle shared GPU, which was reserved for job 2. Then fair share
    puts job 3 first. Were it not tried again, each of the two would wait for the other for ever."""
    from slurm_coloc.sim.setting import Priority

    jobs = [
        job(1, 0, 1000, coloc=False, user="hog"),
        job(2, 0, 1000, coloc=False, user="hog", gpus=2),
        job(3, 0, 1000, user="new"),
        job(4, 0, 1000, coloc=False, user="hog"),
    ]
    setting = Setting(depth=50, pool=1, priority=Priority(age_weight=0.0))
    found = play(jobs, setting, gpus="2xa100-40gb")
    assert [found[number].start_s for number in (1, 2, 3)] == [0, 2000, 1000]


def test_a_pool_does_not_hold_up_whole_gpu_jobs() -> None:
    shared = [job(i, 0, 5000, 30_000) for i in range(1, 6)]
    plain = [job(i, 10, 100, coloc=False) for i in range(6, 9)]
    found = outcome([*shared, *plain], Setting(depth=50, pool=2), gpus="4xa100-40gb")
    waits = [r.start_s or 0.0 for r in found.records if not r.job.coloc]
    assert max(waits) <= 110
