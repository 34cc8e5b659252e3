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


def facts(store: Store, *jobs: int, progress: tuple[dict[str, Any], ...] = ()) -> JobFacts:
    """n1 has one GPU of SM activity 0.7 with these jobs; ``progress``: by their logs."""
    live = Live(store)
    gpu = {
        "uuid": "GPU-1", "total_mib": 40536, "free_mib": 30000, "smact": 0.7,
        "jobs": [{"job_id": job, "mib": 3000} for job in jobs],
    }  # fmt: skip
    live.take("n1", {"gpus": [gpu], "progress": list(progress)})
    return JobFacts(store, live, WINDOW_S)


def test_an_activity_is_of_all_jobs_like_it(store: Store) -> None:
    known = facts(store, 7)
    assert known.expected_smact(LIKE_IT, ("n1",)) is None
    assert known.smact(RUNS, LIKE_IT) == 0.7
    assert known.expected_smact(LIKE_IT, ("n1",)) == 0.7
    assert known.smact(replace(RUNS, job_id=8), LIKE_IT) == 0.7
    assert known.expected_smact("1001:like-it", ("n1",)) is None
    assert known.expected_smact("", ("n1",)) is None


def test_an_activity_is_of_one_kind_of_card(store: Store) -> None:
    """n1 has an A100, n2 a T4, on which the same training is busier, n3 both, n4 was not heard."""
    live = Live(store)
    for name, cards in (("n1", ("A100",)), ("n2", ("T4",)), ("n3", ("T4", "A100"))):
        gpus = [
            {
                "uuid": f"GPU-{name}-{card}", "name": card, "total_mib": 16000, "free_mib": 9000,
                "smact": 0.4 if card == "A100" else 0.9,
                "jobs": [{"job_id": 7 if name == "n1" else 8, "mib": 3000}],
            }
            for card in cards
        ]  # fmt: skip
        live.take(name, {"gpus": gpus})
    known = JobFacts(store, live, WINDOW_S)
    known.begin()
    assert known.smact(RUNS, LIKE_IT) == 0.4
    assert known.expected_smact(LIKE_IT, ("n1",)) == known.expected_smact(LIKE_IT, ("n3",)) == 0.4
    assert known.expected_smact(LIKE_IT, ("n2",)) is None, "measured on no such card"
    assert known.expected_smact(LIKE_IT, ("n4",)) is None
    assert known.smact(replace(RUNS, job_id=8, nodes="n2"), LIKE_IT) == 0.9
    assert known.expected_smact(LIKE_IT, ("n2",)) == 0.9
    assert known.expected_smact(LIKE_IT, ("n1", "n2")) == 0.9, "it may get either"
    assert known.expected_smact(LIKE_IT, ("n1",)) == 0.4


def test_an_activity_is_measured_alone_and_for_a_while(store: Store) -> None:
    assert facts(store, 7, 8).smact(RUNS, LIKE_IT) is None
    young = replace(RUNS, start_s=time.time() - WINDOW_S / 2)
    assert facts(store, 7).smact(young, LIKE_IT) is None


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
