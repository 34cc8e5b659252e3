# SPDX-License-Identifier: Apache-2.0
"""The search over lines: what its C part plays, and that it finds what is known to be best."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.draw import Draw
from slurm_coloc.planning.schedules.anneal import anneal, times
from slurm_coloc.planning.schedules.problem import Problem, Rules, Spot

ROOM = 10


class Half(Problem):
    """Jobs on seats of 10 MiB; so many beside each other run at 1 / so many of their speed."""

    def __init__(
        self, run: Sequence[float], need: Sequence[int], gpus: Sequence[int], slots: int
    ) -> None:
        count, every = len(run), list(range(slots))
        self.run, self.submit, self.gpus = list(run), [0.0] * count, list(gpus)
        self.kind, self.weight = list(range(count)), [1.0] * count
        self.slots, self.nodes = [every] * count, [[every]] * count
        self.room, self.alike, self.need = [ROOM] * slots, [0] * slots, [list(need)] * slots
        self.most, self.movable = 4, count
        self.asked = 0

    def speeds(self, slot: int, kinds: Sequence[int]) -> list[float]:
        assert list(kinds) == sorted(kinds)
        self.asked += 1
        return [1.0 / len(kinds)] * len(kinds)


def one(slot: int, key: float, beside: int = 3) -> Spot:
    return Spot((slot,), key, beside)


def test_jobs_of_one_seat_wait_for_memory_and_slow_each_other_down() -> None:
    problem = Half([100.0, 50.0, 30.0], [6, 4, 5], [1, 1, 1], 1)
    start_s, end_s = times(problem, [one(0, 0.0), one(0, 1.0), one(0, 2.0)])
    # 0 and 1 at half speed until 1 ends at 100; then 0, half done, beside 2.
    assert start_s == [0.0, 0.0, 150.0]
    assert end_s == [150.0, 100.0, 180.0]


def test_beside_how_many_a_job_may_start() -> None:
    problem = Half([100.0, 50.0], [2, 2], [1, 1], 1)
    assert times(problem, [one(0, 0.0), one(0, 1.0, 0)])[0] == [0.0, 100.0]
    problem.rules = Rules([False, True], [0, 0], [0.5, 0.5], [math.inf] * 2)
    assert times(problem, [one(0, 0.0), one(0, 1.0)])[0] == [0.0, 100.0]
    problem.rules = Rules([False] * 2, [0, 1], [0.5, 0.5], [math.inf] * 2)
    assert times(problem, [one(0, 0.0), one(0, 1.0)])[0] == [0.0, 100.0]
    problem.rules = Rules([False] * 2, [0, 0], [0.5, 0.6], [math.inf] * 2, budget=1.0)
    assert times(problem, [one(0, 0.0), one(0, 1.0)])[0] == [0.0, 100.0]
    for bound, start_s in ((1.5, 100.0), (2.0, 0.0)):
        problem.rules = Rules([False] * 2, [0, 0], [0.5, 0.5], [math.inf, bound], bounded=True)
        assert times(problem, [one(0, 0.0), one(0, 1.0)])[0] == [0.0, start_s]


def test_a_job_of_two_gpus_waits_for_both_and_goes_as_the_slower() -> None:
    problem = Half([40.0, 100.0, 10.0], [10, 5, 5], [1, 2, 1], 2)
    spots = [one(0, 0.0), Spot((0, 1), 1.0, 6), one(1, 2.0)]
    start_s, end_s = times(problem, spots)
    assert start_s == [0.0, 40.0, 40.0]
    assert end_s == [40.0, 150.0, 60.0]


def test_a_job_waits_for_its_submission() -> None:
    problem = Half([10.0, 10.0], [5, 5], [1, 1], 1)
    problem.submit = [0.0, 25.0]
    assert times(problem, [one(0, 0.0), one(0, 1.0)]) == ([0.0, 25.0], [10.0, 35.0])


def test_what_the_model_raises_comes_through() -> None:
    class Broken(Half):
        def speeds(self, slot: int, kinds: Sequence[int]) -> list[float]:
            raise KeyError("model")

    with pytest.raises(KeyError, match="model"):
        anneal(Broken([1.0], [1], [1], 1), [[1.0]], [one(0, 0.0)], Draw(1), 10)


def test_slots_must_be_as_many_as_gpus() -> None:
    with pytest.raises(ValueError, match="job 0: 1 slots for 2 GPUs"):
        times(Half([1.0], [1], [2], 2), [one(0, 0.0)])


def test_the_model_is_asked_once_a_set() -> None:
    problem = Half([10.0 + n for n in range(6)], [4] * 6, [1] * 6, 2)
    anneal(problem, [problem.run], [one(0, float(n)) for n in range(6)], Draw(1), 4000)
    assert problem.asked <= 6 + 15, "alone, and in twos: three do not fit"


jobs = st.lists(
    st.tuples(
        st.floats(1.0, 1000.0), st.integers(1, ROOM), st.integers(1, 2), st.floats(0.0, 500.0)
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=150, deadline=None)
@given(jobs, st.integers(2, 3), st.integers(0, 2**40))
def test_every_plan_that_is_found_is_a_schedule(
    given: list[tuple[float, int, int, float]], slots: int, seed: int
) -> None:
    run, need, gpus, submit = (list(values) for values in zip(*given, strict=True))
    problem = Half(run, need, gpus, slots)
    problem.submit = submit
    draw = Draw(seed)
    spots = [
        Spot(problem.some_slots(job, draw), float(job), problem.beside(job))
        for job in range(len(run))
    ]
    first_s = max(times(problem, spots)[1])
    found = anneal(problem, [run], spots, Draw(seed), 200)
    again = anneal(problem, [run], spots, Draw(seed), 200)
    assert found == again, "one seed, one answer"
    start_s, end_s = times(problem, found.spots)
    assert found.makespan_s == pytest.approx(max(end_s))
    assert found.makespan_s <= first_s
    # No time sharing gains anything under this model, and no job ends before it could.
    assert found.makespan_s >= max(map(sum, zip(submit, run, strict=True))) - 1e-6
    work = sum(map(math.prod, zip(run, gpus, strict=True)))
    assert found.makespan_s * slots >= work * (1 - 1e-9)
    for job, spot in enumerate(found.spots):
        assert len(set(spot.slots)) == gpus[job] and start_s[job] >= submit[job]
    for moment in start_s:
        for slot in range(slots):
            there = [
                job
                for job, spot in enumerate(found.spots)
                if slot in spot.slots and start_s[job] <= moment < end_s[job]
            ]
            assert sum(need[job] for job in there) <= ROOM and len(there) <= problem.most


def test_the_best_is_found_where_it_is_known() -> None:
    """Ten jobs that fill two seats exactly, none beside another."""
    run = [100.0, 90.0, 80.0, 70.0, 60.0, 60.0, 70.0, 80.0, 90.0, 100.0]
    problem = Half(run, [ROOM] * 10, [1] * 10, 2)
    found = anneal(problem, [run], [one(0, float(n)) for n in range(10)], Draw(3), 4000)
    assert found.makespan_s == 400.0


def test_several_cases_are_rated_by_their_mean() -> None:
    problem = Half([100.0, 10.0, 10.0], [ROOM] * 3, [1] * 3, 2)
    runs = [[100.0, 10.0, 10.0], [10.0, 100.0, 10.0]]
    found = anneal(problem, runs, [one(0, float(n)) for n in range(3)], Draw(3), 1000)
    slots = [spot.slots for spot in found.spots]
    assert slots[0] != slots[1], "those that may be long are apart"
    assert found.makespan_s in (100.0, 105.0, 110.0)
