# SPDX-License-Identifier: Apache-2.0
"""What a plan knows of the jobs, by the nodes' words."""

import time
from dataclasses import replace
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.place.job_facts import JobFacts
from tests.unit.flow.placers import ID, JOB

WINDOW_S = 90.0
NOW_S = time.time()
RUNS = replace(JOB, state="RUNNING", nodes="n1", start_s=NOW_S - 1000.0)
LIKE_IT = "1000:like-it"


def gpu(*jobs: int, smact: float = 0.7, **values: Any) -> dict[str, Any]:
    """A GPU as its agent tells it."""
    there = [{"job_id": job, "mib": 3000} for job in jobs]
    usual = {"uuid": "GPU-1", "total_mib": 40536, "free_mib": 30000}
    return usual | {"smact": smact, "jobs": there} | values


def facts(store: Store, *jobs: int, progress: tuple[dict[str, Any], ...] = ()) -> JobFacts:
    """n1 has one GPU of SM activity 0.7 with these jobs; ``progress``: by their logs."""
    live = Live(store)
    live.take("n1", {"gpus": [gpu(*jobs)], "progress": list(progress)})
    return JobFacts(store, live, WINDOW_S)


class Clock:
    """The agents' time, from NOW_S on."""

    def __init__(self, patch: pytest.MonkeyPatch, known: JobFacts) -> None:
        self._patch, self.known = patch, known

    def beat(self, after_s: float, **nodes: list[dict[str, Any]]) -> None:
        """The nodes' heartbeats at that time, and a round of colocd that looks at the jobs."""
        self._patch.setattr("slurm_coloc.flow.cluster.telemetry.time.time", lambda: NOW_S + after_s)
        for node, gpus in nodes.items():
            self.known._live.take(node, {"gpus": gpus})
            for job_id in {job["job_id"] for one in gpus for job in one["jobs"]}:
                self.known.smact(replace(RUNS, job_id=job_id, nodes=node), LIKE_IT)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, store: Store) -> Clock:
    return Clock(monkeypatch, JobFacts(store, Live(store), WINDOW_S))


def test_an_activity_is_of_all_jobs_like_it(clock: Clock) -> None:
    known = clock.known
    clock.beat(0.0, n1=[gpu(7)])
    assert known.expected_smact(LIKE_IT, ("n1",)) is None
    clock.beat(200.0, n1=[gpu(7)])
    assert known.smact(RUNS, LIKE_IT) == 0.7
    assert known.expected_smact(LIKE_IT, ("n1",)) == 0.7
    assert known.smact(replace(RUNS, job_id=8), LIKE_IT) == 0.7
    assert known.expected_smact("1001:like-it", ("n1",)) is None
    assert known.expected_smact("", ("n1",)) is None


def test_an_activity_is_of_one_kind_of_card(clock: Clock) -> None:
    """n1 has an A100, n2 a T4, on which the same training is busier, n3 both, n4 was not heard."""
    known = clock.known
    first = gpu(7, name="A100", smact=0.4)
    second = gpu(8, uuid="GPU-2", name="T4", smact=0.9)
    idle = gpu(uuid="GPU-2", name="T4")
    both = [gpu(uuid=f"GPU-{one}", name=one) for one in ("T4", "A100")]
    for at_s in (0.0, 200.0):
        clock.beat(at_s, n1=[first], n2=[idle], n3=both)
    known.begin()
    assert known.expected_smact(LIKE_IT, ("n1",)) == known.expected_smact(LIKE_IT, ("n3",)) == 0.4
    assert known.expected_smact(LIKE_IT, ("n2",)) is None, "measured on no such card"
    assert known.expected_smact(LIKE_IT, ("n4",)) is None
    clock.beat(300.0, n2=[second])
    clock.beat(500.0, n2=[second])
    assert known.expected_smact(LIKE_IT, ("n2",)) == 0.9
    assert known.expected_smact(LIKE_IT, ("n1", "n2")) == 0.9, "it may get either"
    assert known.expected_smact(LIKE_IT, ("n1",)) == 0.4


def test_an_activity_is_measured_alone_and_for_a_while(clock: Clock) -> None:
    known = clock.known
    for at_s, there in ((0.0, (7, 8)), (200.0, (7, 8)), (210.0, (7,)), (380.0, (7,))):
        clock.beat(at_s, n1=[gpu(*there)])
        assert known.smact(RUNS, LIKE_IT) is None, f"{there} at {at_s}"
    clock.beat(400.0, n1=[gpu(7, smact=0.5)])
    assert known.smact(RUNS, LIKE_IT) == 0.5


def test_a_neighbour_that_has_left_does_not_count(clock: Clock) -> None:
    """The figure is a mean: for a while it holds what the neighbour did."""
    known = clock.known
    clock.beat(0.0, n1=[gpu(7, smact=0.5)])
    clock.beat(200.0, n1=[gpu(7, smact=0.5)])
    clock.beat(300.0, n1=[gpu(7, 8, smact=1.0)])
    clock.beat(600.0, n1=[gpu(7, smact=0.95)])
    clock.beat(650.0, n1=[gpu(7, smact=0.7)])
    assert known.smact(RUNS, LIKE_IT) == 0.5


def test_a_job_of_two_gpus_is_measured_alone_on_both(clock: Clock) -> None:
    """Beside another one on one of them it is slowed on both."""
    known, second = clock.known, {"uuid": "GPU-2"}
    for at_s in (0.0, 200.0):
        clock.beat(at_s, n1=[gpu(7, smact=0.4), gpu(7, 8, **second)])
    assert known.smact(RUNS, LIKE_IT) is None
    for at_s in (300.0, 500.0):
        clock.beat(at_s, n1=[gpu(7, smact=0.7), gpu(7, smact=0.8, **second)])
    assert known.smact(RUNS, LIKE_IT) == 0.8


def test_beside_others_its_part_of_the_gpu_tells(store: Store) -> None:
    live = facts(store, 7, 8)._live
    known = JobFacts(store, live, WINDOW_S, lambda: {(7, 0): 0.45})
    assert known.smact(RUNS, LIKE_IT) == 0.45
    assert known.smact(replace(RUNS, job_id=8), LIKE_IT) is None
    assert known.expected_smact(LIKE_IT, ("n1",)) is None, "a division is no measurement of others"


def test_a_log_tells_the_time_of_jobs_like_it(store: Store) -> None:
    """Up to the time limit of each: it may claim anything."""
    word = {"job_id": 7, "restart": 0, "at_s": NOW_S, "done": 0.5, "left_s": 2000.0}
    known = facts(store, 7, progress=(word,))
    assert known.expected(ID, LIKE_IT, None) == (None, 0.0)
    assert known.left_s(RUNS, ID, LIKE_IT, NOW_S) == pytest.approx(2000.0)
    assert known.expected(ID, LIKE_IT, None)[0] == pytest.approx(3000.0)
    assert known.expected(ID, LIKE_IT, 600.0)[0] == 600.0
    assert known.expected(ID, "1001:like-it", None) == (None, 0.0)
