# SPDX-License-Identifier: Apache-2.0
"""Many jobs that begin in the same moment are asked about in few questions."""

import asyncio
from collections.abc import Collection

import pytest

from slurm_coloc.adapters.slurm.gate import AT_ONCE
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.nodes.job_questions import JobQuestions

LAST = 99  # slurmctld has forgotten all above


class Slurm:
    """Answers when ``open`` is set; notes what it is asked."""

    def __init__(self, error: SlurmError | None = None) -> None:
        self.asked: list[set[int]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error = error

    async def job(self, job_id: int) -> JobView | None:
        return (await self.jobs({job_id})).get(job_id)

    async def jobs(self, job_ids: Collection[int]) -> dict[int, JobView]:
        self.asked.append(set(job_ids))
        await self.open.wait()
        if self.error:
            raise self.error
        return {one: JobView(one, "RUNNING") for one in job_ids if one <= LAST}


def ids(found: Collection[JobView | None]) -> list[int | None]:
    return [view.job_id if view else None for view in found]


def test_a_burst_takes_few_questions() -> None:
    slurm = Slurm()

    async def run() -> list[JobView | None]:
        questions = JobQuestions(slurm)  # type: ignore[arg-type]
        return await asyncio.gather(*(questions.job(one) for one in range(1, 101)))

    found = asyncio.run(run())
    assert ids(found) == [*range(1, 100), None]
    assert len(slurm.asked) == AT_ONCE + 1
    assert slurm.asked[:AT_ONCE] == [{1}, {2}]  # whoever is alone is asked about alone


def test_an_answer_is_never_older_than_its_question() -> None:
    """A second node of a job asks while the answer for the first is on its way."""
    slurm = Slurm()

    async def run() -> None:
        questions = JobQuestions(slurm)  # type: ignore[arg-type]
        slurm.open.clear()
        first = asyncio.create_task(questions.job(1))
        await asyncio.sleep(0)
        second = asyncio.create_task(questions.job(1))
        await asyncio.sleep(0)
        slurm.open.set()
        assert ids([await first, await second]) == [1, 1]

    asyncio.run(run())
    assert slurm.asked == [{1}, {1}]


def test_who_leaves_takes_no_answer_from_others() -> None:
    slurm = Slurm()

    async def run() -> None:
        questions = JobQuestions(slurm)  # type: ignore[arg-type]
        slurm.open.clear()
        others = [asyncio.create_task(questions.job(one)) for one in (1, 2)]
        await asyncio.sleep(0)
        gone, stays = (asyncio.create_task(questions.job(3)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        slurm.open.set()
        assert ids(await asyncio.gather(*others, stays)) == [1, 2, 3]

    asyncio.run(run())


def test_an_error_reaches_everybody_and_ends() -> None:
    slurm = Slurm(SlurmError("away", "slurm-away"))

    async def run() -> list[object]:
        questions = JobQuestions(slurm)  # type: ignore[arg-type]
        asked = (questions.job(one) for one in range(5))
        found = await asyncio.gather(*asked, return_exceptions=True)
        slurm.error = None
        assert ids([await questions.job(7)]) == [7]
        return list(found)

    found = asyncio.run(run())
    assert all(isinstance(one, SlurmError) and one.code == "slurm-away" for one in found)


@pytest.mark.parametrize("waiting", [1, 2])
def test_few_are_asked_about_one_by_one(waiting: int) -> None:
    """A question about several makes slurmctld show all of its jobs."""
    slurm = Slurm()

    async def run() -> None:
        questions = JobQuestions(slurm)  # type: ignore[arg-type]
        slurm.open.clear()
        asked = [asyncio.create_task(questions.job(one)) for one in range(AT_ONCE + waiting)]
        await asyncio.sleep(0)
        slurm.open.set()
        await asyncio.gather(*asked)

    asyncio.run(run())
    assert all(len(one) == 1 for one in slurm.asked)
