# SPDX-License-Identifier: Apache-2.0
"""Whose text is estimated when: one of a user at a time, users in turn, the same text once."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.flow.prepare.estimates import Estimates
from slurm_coloc.flow.prepare.queue import MAX_WAITING, TextQueue, Work
from slurm_coloc.flow.prepare.remembered import Remembered
from tests.unit.estimate.bombs import pack
from tests.unit.flow.preparing import (
    ADA,
    BEN,
    CLEO,
    GIVEN,
    alone,
    children_of,
    faulty,
    honest,
    until,
    why,
    with_estimates,
)

__all__ = ["faulty"]


def test_a_user_has_one_child_at_a_time_and_others_have_theirs(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        mine = [
            asyncio.create_task(made.prepare(ADA, pack(f"wait{number}"), GIVEN))
            for number in range(5)
        ]
        await until(lambda: children_of(made))
        assert alone(await made.prepare(BEN, pack(honest(1)), GIVEN)).estimate
        await until(lambda: len(children_of(made)) == 1)
        found = await asyncio.gather(*mine)
        assert why(found[0])[0] is Reason.SLOW_ESTIMATE, "its own time was over"
        assert [why(one)[0] for one in found[1:]] == [Reason.USER_BUSY] * 4
        assert not any(one.lasting for one in found)

    with_estimates(work, time_limit_ms=1500, workers=4)


def test_texts_of_one_user_are_estimated_one_after_another(faulty: None) -> None:
    """sbatch in the background: nobody loses a share for it."""

    async def work(made: Estimates) -> None:
        texts = [f"pause\n{honest(number)}" for number in range(4)]
        found = await asyncio.gather(*(made.prepare(ADA, pack(one), GIVEN) for one in texts))
        assert all(alone(one).estimate for one in found)

    with_estimates(work)


def test_users_whose_texts_took_too_much_leave_a_worker_to_the_others(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        first = [made.prepare(uid, pack(f"spin {uid}"), GIVEN) for uid in (ADA, BEN)]
        assert {why(one)[0] for one in await asyncio.gather(*first)} == {Reason.SLOW_ESTIMATE}
        more = [
            asyncio.create_task(made.prepare(uid, pack(f"wait {uid}"), GIVEN)) for uid in (ADA, BEN)
        ]
        await until(lambda: children_of(made))
        assert alone(await made.prepare(CLEO, pack(honest()), GIVEN)).estimate
        await until(lambda: len(children_of(made)) == 1)
        for task in more:
            task.cancel()

    with_estimates(work, cpu_limit_ms=600)  # an honest text takes 200 on a busy machine


def test_the_same_text_at_the_same_time_is_estimated_once(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        packed = pack(f"pause\n{honest()}")
        many = [asyncio.create_task(made.prepare(ADA, packed, GIVEN)) for _ in range(30)]
        await until(lambda: children_of(made))
        many += [asyncio.create_task(made.prepare(BEN, packed, GIVEN)) for _ in range(30)]
        found = await asyncio.gather(*many)
        assert all(one is found[0] for one in found) and alone(found[0]).estimate

    with_estimates(work)


def test_who_stops_waiting_finds_the_answer_next_time(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        packed = pack(f"pause\n{honest()}")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(made.prepare(ADA, packed, GIVEN), 0.2)
        await until(lambda: len(made._kept))
        assert alone(await made.prepare(BEN, packed, GIVEN)).estimate

    with_estimates(work)


def test_a_text_that_nobody_waits_for_any_more_is_not_begun(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        tasks = [
            asyncio.create_task(made.prepare(ADA, pack(f"wait {number}"), GIVEN))
            for number in range(3)
        ]
        await until(lambda: children_of(made))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert made._queue.next(lambda uid: False) is None

    with_estimates(work, workers=4)


def test_nobody_waits_for_estimates_that_are_closed(faulty: None) -> None:
    """As when colocd reads its configuration again."""

    async def work(made: Estimates) -> None:
        tasks = [
            asyncio.create_task(made.prepare(ADA, pack(f"wait {number}"), GIVEN))
            for number in range(3)
        ]
        await until(lambda: children_of(made))
        made.close()
        found = await asyncio.gather(*tasks)
        assert all(why(one)[0] is Reason.NO_ESTIMATE and not one.lasting for one in found)

    with_estimates(work)


def test_more_texts_of_one_user_than_may_wait_are_refused_at_once(faulty: None) -> None:
    async def work(made: Estimates) -> None:
        tasks = [
            asyncio.create_task(made.prepare(ADA, pack(f"wait {number}"), GIVEN))
            for number in range(MAX_WAITING + 1)
        ]
        await until(lambda: children_of(made))
        assert why(await made.prepare(ADA, pack("wait more"), GIVEN))[0] is Reason.USER_BUSY
        for task in tasks:
            task.cancel()

    with_estimates(work)


@pytest.fixture
def work_of() -> Iterator[Callable[[int, str], Work]]:
    loop = asyncio.new_event_loop()
    yield lambda uid, key: Work(uid, key, key, "", {}, loop.create_future())
    loop.close()


def test_users_take_turns(work_of: Callable[[int, str], Work]) -> None:
    """One who sends many waits behind one who sends two."""
    turns = TextQueue(2)
    assert all(turns.add(work_of(ADA, key)) for key in "abcd")
    assert all(turns.add(work_of(BEN, key)) for key in "xy")
    order = ""
    while work := turns.next(lambda uid: False):  # one worker is free at a time
        order += work.key
        turns.over(work)
    assert order == "axbycd"


def test_costly_users_leave_a_worker_free(work_of: Callable[[int, str], Work]) -> None:
    turns = TextQueue(2)
    assert all(turns.add(work_of(uid, str(uid))) for uid in (ADA, BEN, CLEO))
    running = [turns.next(lambda uid: uid != CLEO) for _ in range(3)]
    assert [one and one.uid for one in running] == [ADA, CLEO, None]


def test_what_is_remembered_is_bounded_and_ends() -> None:
    now = [0.0]
    kept: Remembered[int] = Remembered(2, 10.0, lambda: now[0])
    for number, key in enumerate("abc"):
        kept.put(key, number)
    assert [kept.get(key) for key in "abc"] == [None, 1, 2]
    kept.get("b")
    kept.put("d", 3)
    assert [kept.get(key) for key in "bcd"] == [1, None, 3]
    now[0] = 11.0
    assert kept.get("b") is None and len(kept) == 1
