# SPDX-License-Identifier: Apache-2.0
"""What jobs without --coloc use of a node's GPUs, from its samples to colocd's database."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.gpu.telemetry.observed import GONE_S, MOST, Observed
from slurm_coloc.core.gpu.telemetry.reading import Held, Profile, Reading
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.nodes import observed
from slurm_coloc.flow.queries import answers
from slurm_coloc.sim.readers.observed import past_of
from tests.unit.flow.test_store import decision, run_row

NAME = "NVIDIA A100-SXM4-40GB"


def reading(
    *held: tuple[int | None, int], uuid: str = "GPU-a", smact: float | None = 0.5
) -> Reading:
    there = tuple(Held(100 + n, 0.0, mib, job) for n, (job, mib) in enumerate(held))
    return Reading(uuid, NAME, 40960, 30000, there, Profile(smact=smact))


def seen(*samples: list[Reading], ours: tuple[int, ...] = ()) -> Observed:
    made = Observed()
    for at_s, one in enumerate(samples):
        made.see(one, ours, 1000.0 + at_s)
    return made


def test_the_peak_and_the_mean_of_a_job() -> None:
    made = seen([reading((7, 1000), smact=0.2)], [reading((7, 3000), smact=0.6)], [reading()])
    (row,) = made.due()
    assert (row["job_id"], row["samples"], row["until_s"]) == (7, 2, 1001.0)
    (gpu,) = row["gpus"]
    assert (gpu["peak_mib"], gpu["smact"], gpu["total_mib"]) == (3000, 0.4, 40960)


def test_processes_of_no_job_and_of_our_jobs_are_not_counted() -> None:
    made = seen([reading((None, 500), (8, 700))], ours=(8,))
    assert made.due() == []


def test_without_a_counter_the_activity_is_not_known() -> None:
    ((gpu,),) = [row["gpus"] for row in seen([reading((7, 10), smact=None)]).due()]
    assert gpu["smact"] is None


def test_what_was_taken_is_sent_again_only_when_it_grows() -> None:
    made = seen([reading((7, 10))])
    made.taken(made.due())
    assert made.due() == []
    made.see([reading((7, 20))], (), 1001.0)
    assert [row["gpus"][0]["peak_mib"] for row in made.due()] == [20]
    # Not taken yet: it stays, however long it has gone.
    made.see([reading()], (), 1001.0 + 2 * GONE_S)
    assert len(made.due()) == 1
    made.taken(made.due())
    made.see([reading()], (), 1001.0 + 3 * GONE_S)
    assert made._jobs == {} and made._taken == {}


def test_an_id_that_comes_again_is_another_job() -> None:
    made = seen([reading((7, 3000))])
    made.see([reading((7, 10))], (), 1000.0 + GONE_S + 1)
    assert [row["gpus"][0]["peak_mib"] for row in made.due()] == [10]


def test_a_crowd_is_bounded() -> None:
    made = Observed()
    for job_id in range(MOST + 50):
        made.see([reading((job_id + 1, 10))], (), 1000.0 + job_id)
    assert len(made._jobs) == MOST and len(made.due()) == 64


# colocd


class Slurm:
    """squeue, with jobs by their ids."""

    def __init__(self, *views: JobView) -> None:
        self.views = list(views)
        self.asked = 0

    async def all_jobs(self) -> list[JobView]:
        self.asked += 1
        return self.views


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path)


def named(store: Store, slurm: Slurm) -> None:
    asyncio.run(observed.name_them(store, slurm))  # type: ignore[arg-type]


def rows(store: Store) -> list[dict[str, Any]]:
    found = answers.measured(store, {"days": 3660})["jobs"]
    return [dict(one) for one in found]


def beat(made: Observed) -> list[dict[str, Any]]:
    """As it comes over the wire: lists, no tuples."""
    return [dict(row) for row in made.due()]


def view(job_id: int) -> JobView:
    return JobView(
        job_id=job_id, state="RUNNING", uid=2001, account="ml", partition="main",
        submit_s=900.0, start_s=990.0,
    )  # fmt: skip


def test_a_job_is_recorded_and_named_by_one_question(store: Store) -> None:
    made = Observed()
    now = time.time()
    for at in range(3):
        made.see([reading((7, 1000 + at)), reading((9, 10), uuid="GPU-b")], (), now + at)
    observed.take(store, "n1", beat(made))
    slurm = Slurm(view(7))
    named(store, slurm)
    named(store, slurm)
    assert slurm.asked == 1
    by_id = {row["job_id"]: row for row in rows(store)}
    assert (by_id[7]["uid"], by_id[7]["peak_mib"], by_id[7]["account"]) == (2001, 1002, "ml")
    assert by_id[9]["uid"] == -1
    made.see([reading((7, 5000))], (), now + 4)
    observed.take(store, "n1", beat(made))
    by_id = {row["job_id"]: row for row in rows(store)}
    assert (by_id[7]["uid"], by_id[7]["peak_mib"], by_id[7]["samples"]) == (2001, 5000, 4)


@pytest.mark.parametrize(
    "rows_",
    [
        "no list",
        [{"job_id": 0}],
        [{"job_id": 7, "since_s": 1.0, "until_s": 2.0, "samples": 1, "gpus": []}],
        [{"job_id": 7, "since_s": float("nan"), "until_s": 2.0, "samples": 1,
          "gpus": [{"uuid": "GPU-a", "total_mib": 1, "peak_mib": 1}]}],
        [{"job_id": 7, "since_s": 1.0, "until_s": 2.0, "samples": 1,
          "gpus": [{"uuid": "GPU-a", "total_mib": 1, "peak_mib": 2**40}]}],
    ],
)  # fmt: skip
def test_what_is_malformed_is_left_out(store: Store, rows_: object) -> None:
    observed.take(store, "n1", rows_)
    assert store.observed.since(0.0) == []


def test_a_job_that_colocd_follows_is_not_counted_twice(store: Store) -> None:
    store.decisions.add(decision())
    store.runs.see(run_row(job_id=7))
    observed.take(store, "n1", beat(seen([reading((7, 1000))])))
    named(store, Slurm(view(7)))
    assert store.observed.since(0.0) == []


# the page


def row(job_id: int, **changes: Any) -> dict[str, Any]:
    plain = {
        "job_id": job_id, "node": "n1", "since_s": 1000.0, "until_s": 1600.0, "samples": 600,
        "gpus": 1, "kind": NAME, "total_mib": 40960, "peak_mib": 9000, "smact": 0.4, "uid": 2001,
        "account": "ml", "partition": "main", "submit_s": 900.0, "start_s": 990.0,
    }  # fmt: skip
    return plain | changes


def test_runs_for_the_simulator() -> None:
    past = past_of([row(7), row(8, uid=-1, submit_s=None, start_s=None, smact=None)])
    seven, eight = past.jobs
    assert (seven.submit_s, seven.start_s, seven.run_s) == (900.0, 990.0, 610.0)
    assert (seven.peak_mib, seven.smact, seven.user, seven.gpus) == (9000, 0.4, "2001", 1)
    assert (eight.submit_s, eight.user, eight.smact) == (1000.0, "job 8", None)
    assert any("never used their GPU" in line for line in past.notes)


def test_a_job_on_two_nodes_and_an_id_that_came_again() -> None:
    both = [row(7), row(7, node="n2", gpus=2, peak_mib=12000)]
    later = row(7, since_s=9000.0, until_s=9100.0, submit_s=8000.0, start_s=8990.0)
    first, second = past_of([later, *both]).jobs
    assert (first.gpus, first.peak_mib, first.id) == (3, 12000, "7")
    assert (second.id, second.submit_s, second.run_s) == ("7.1", 8000.0, 110.0)


def test_a_job_that_its_agent_met_twice_is_one_run() -> None:
    """The agent was restarted, or the job held no GPU memory for some minutes."""
    later = row(7, since_s=1900.0, until_s=2500.0, gpus=2, peak_mib=12000)
    [whole] = past_of([row(7), later]).jobs
    assert (whole.start_s, whole.run_s, whole.gpus, whole.peak_mib) == (990.0, 1510.0, 2, 12000)
