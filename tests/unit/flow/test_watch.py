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
from slurm_coloc.flow.nodes import epilog
from slurm_coloc.flow.watch.record import Recorder
from slurm_coloc.flow.watch.watch import Watcher
from tests.unit.flow.test_store import decision, report, run_row


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


@pytest.mark.parametrize(("told", "opens"), [(("GPU-1",), [True]), (None, [])])
@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT", None])
def test_so_is_that_of_one_that_ended_well_or_is_forgotten(
    tmp_path: Path, state: str | None, told: tuple[str, ...] | None, opens: list[bool]
) -> None:
    """Else its peak is never learned. A node that told nothing at the start is not waited for."""
    ended = [replace(RUNNING, state=state, end_s=time.time() - 120)] if state else []
    watcher, store = watching(tmp_path, *ended)
    [run] = store.runs.of_job(7)
    store.runs.change(run, gpu_uuids=told)
    asyncio.run(watcher.reconcile())
    assert [run.open for run in store.runs.of_job(7) if run.open] == opens
    watcher._since_s -= 600
    asyncio.run(watcher.reconcile())
    assert [run.open for run in store.runs.of_job(7)] == [False]


def test_a_run_that_was_not_seen_to_end_ended_when_its_node_said(tmp_path: Path) -> None:
    """Else it is of all the time that colocd was away, and beside jobs that it never met."""
    watcher, store = watching(tmp_path)
    ended_s = time.time() - 40_000
    epilog.take(store, report(ended_s=ended_s, evidence=None))
    asyncio.run(watcher.reconcile())
    [run] = store.runs.of_job(7)
    assert (run.outcome, run.end_s) == (Outcome.GONE, ended_s)


def test_a_report_is_not_of_an_older_job_with_this_id(tmp_path: Path) -> None:
    """Ids start again after `slurmctld -c`."""
    watcher, store = watching(tmp_path, RUNNING)
    [old] = store.runs.of_job(7)
    store.runs.close(old, outcome="cancelled", end_s=time.time() - 9000)
    store.decisions.add(decision(id="ba9876543210"))
    store.runs.see(run_row(decision="ba9876543210", start_s=time.time() - 60))
    use = {"v": 1, "job_id": 7, "restart": 0, "since_s": 1.0, "until_s": 2.0, "samples": 2,
           "complete": True, "gpus": [{"uuid": "GPU-1", "peak_mib": 5}]}  # fmt: skip
    epilog.take(store, report(evidence=None, used=use, ended_s=time.time()))
    watcher._recorder.late(7)
    assert [run.used for run in store.runs.of_job(7)] == [None, None]
    assert watcher._recorder.report_on(store.runs.of_job(7)[1]) is not None
