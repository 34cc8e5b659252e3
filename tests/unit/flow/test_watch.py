# SPDX-License-Identifier: Apache-2.0
"""What many ends at one time do to the looks: the real gate, and a Slurm that takes its time. And
what a look does not prove: a job that is not shown may go on."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.slurm.gate import Gate
from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.watch.record import Recorder
from slurm_coloc.flow.watch.watch import Watcher
from tests.unit.flow.test_store import decision


class Slow:
    """A slurmctld behind the gate that answers one question in a millisecond."""

    def __init__(self) -> None:
        self.gate = Gate("slurmctld")
        self.asked: list[int] = []

    async def job(self, job_id: int) -> JobView:
        async def ask() -> JobView:
            self.asked.append(job_id)
            await asyncio.sleep(0.001)
            return JobView(job_id, "COMPLETED", uid=1000)

        return await self.gate.through(ask)


def test_every_one_of_many_jobs_that_end_together_is_seen(tmp_path: Path) -> None:
    slurm = Slow()
    watcher = Watcher(Store.open(tmp_path), cast(SlurmClient, slurm), cast(Any, None))

    async def burst() -> list[JobView | None]:
        return await asyncio.gather(*map(watcher.poll_once, range(1, 501)))

    seen = asyncio.run(burst())
    assert sorted(slurm.asked) == list(range(1, 501))
    assert [view.job_id for view in seen if view] == list(range(1, 501))


class Forgetful:
    """A slurmctld whose host's directory does not know a user for a while: squeue has none of his
    jobs, and ends with 0."""

    def __init__(self, *views: JobView) -> None:
        self.views = {view.job_id: view for view in views}

    async def jobs_of(self, uids: object) -> list[JobView]:
        return []

    async def jobs(self, job_ids: set[int]) -> dict[int, JobView]:
        return {one: self.views[one] for one in job_ids & self.views.keys()}

    async def ended(self, *args: object) -> list[JobView]:
        return []


MARK = "coloc:1:abcdef012345:collocate:fits:4"
RUNNING = JobView(7, "RUNNING", uid=1000, admin_comment=MARK, submit_s=50.0, start_s=60.0)


def watching(tmp_path: Path, *views: JobView) -> tuple[Watcher, Store]:
    """A watcher that follows job 7, and then sees what Slurm shows of it in ``views``."""
    store = Store.open(tmp_path)
    store.decisions.add(decision(id="abcdef012345"))
    recorder = Recorder(Config(), store)
    watcher = Watcher(store, cast(SlurmClient, Forgetful(*views)), recorder, lambda view: False)
    watcher.see(RUNNING)
    assert [run.open for run in store.runs.of_job(7)] == [True]
    return watcher, store


def test_a_user_whom_the_directory_has_lost_keeps_his_runs(tmp_path: Path) -> None:
    """Closed ones would be ended by their nodes a minute later."""
    watcher, store = watching(tmp_path, RUNNING)
    asyncio.run(watcher.reconcile())
    assert [run.open for run in store.runs.of_job(7)] == [True]


def test_what_slurmctld_does_not_know_is_gone(tmp_path: Path) -> None:
    watcher, store = watching(tmp_path)
    asyncio.run(watcher.reconcile())
    assert [run.outcome for run in store.runs.of_job(7)] == [Outcome.GONE]


@pytest.mark.parametrize(
    ("submit_s", "outcomes"), [(50.0, [None]), (51.0, [Outcome.GONE])], ids=["same", "other job"]
)
def test_a_job_whose_mark_an_operator_overwrote(
    tmp_path: Path, submit_s: float, outcomes: list[object]
) -> None:
    """It is still the one that was followed; one of the same id, submitted later, is not."""
    watcher, store = watching(
        tmp_path, replace(RUNNING, admin_comment="see ticket 4711", submit_s=submit_s)
    )
    asyncio.run(watcher.reconcile())
    assert [run.outcome for run in store.runs.of_job(7)] == outcomes


def test_a_report_that_was_kept_while_colocd_was_away_is_waited_for(tmp_path: Path) -> None:
    """The job ended two minutes ago; its node finds the new colocd some seconds later."""
    ended = replace(RUNNING, state="FAILED", end_s=time.time() - 120)
    watcher, store = watching(tmp_path, ended)
    asyncio.run(watcher.reconcile())
    assert [run.open for run in store.runs.of_job(7)] == [True]
    watcher._since_s -= 600
    asyncio.run(watcher.reconcile())
    assert [run.outcome for run in store.runs.of_job(7)] == [Outcome.FAILED]
