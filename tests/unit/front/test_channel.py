# SPDX-License-Identifier: Apache-2.0
"""The channel between colocd's two processes, and the turns of users."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from slurm_coloc.adapters import channel as module
from slurm_coloc.adapters.channel import Channel
from slurm_coloc.core.rates import Rate
from slurm_coloc.errors import ColocError, DaemonUnreachable, UsageFault
from slurm_coloc.front import pace
from slurm_coloc.front.pace import Pace, Paced


async def other(op: str, fields: dict[str, Any]) -> dict[str, Any]:
    match op:
        case "echo":
            return fields
        case "refuse":
            raise UsageFault("not this", "bad-request")
        case "never":
            await asyncio.sleep(60)
        case "large":
            return {"text": "x" * (module.MAX_LINE + 1)}
    raise KeyError(op)


def joined(use: Callable[[Channel, Channel], Awaitable[None]]) -> None:
    async def run() -> None:
        pair = socket.socketpair()
        one, two = [await Channel.open(end, other) for end in pair]
        running = [asyncio.create_task(end.run()) for end in (one, two)]
        try:
            await asyncio.wait_for(use(one, two), 20)
        finally:
            one.close()
            await asyncio.wait(running)

    asyncio.run(run())


def test_answers_find_their_calls() -> None:
    async def use(one: Channel, two: Channel) -> None:
        slow = asyncio.create_task(one.call("never", 0.2))
        calls = [one.call("echo", 5, number=n) for n in range(500)]
        calls += [two.call("echo", 5, number=n) for n in range(500)]
        found = await asyncio.gather(*calls)
        assert [answer["number"] for answer in found] == [*range(500)] * 2
        with pytest.raises(DaemonUnreachable, match=r"within 0\.2 s"):
            await slow

    joined(use)


def test_errors_come_back_with_their_codes() -> None:
    async def use(one: Channel, two: Channel) -> None:
        for op, code in (("refuse", "bad-request"), ("broken", "internal"), ("large", "internal")):
            with pytest.raises(ColocError) as caught:
                await one.call(op, 5)
            assert caught.value.code == code
        assert await one.call("echo", 5, a=1) == {"a": 1}, "it goes on"

    joined(use)


def test_calls_are_bounded_and_fail_with_the_other_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 3)

    async def use(one: Channel, two: Channel) -> None:
        calls = [asyncio.create_task(one.call("never", 15)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ColocError, match="busy"):
            await one.call("echo", 5)
        two.close()
        for call in calls:
            with pytest.raises(DaemonUnreachable):
                await call
        assert not one.send("echo")

    joined(use)


def test_what_the_other_process_does_not_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNSENT", 1 << 16)

    async def run() -> None:
        ours, theirs = socket.socketpair()
        one = await Channel.open(ours, other)
        sent = 0
        while one.send("figures", text="x" * 4096):
            sent += 1
            assert sent < 10_000
        one.close()
        theirs.close()

    asyncio.run(run())


def test_a_user_asks_one_thing_at_a_time() -> None:
    """Two users are served side by side, two questions of one user are not."""
    running: list[int] = []
    most: dict[int, int] = {}

    async def question(paced: Paced, uid: int) -> None:
        async with paced.turn(uid):
            running.append(uid)
            most[uid] = max(most.get(uid, 0), running.count(uid))
            await asyncio.sleep(0.01)
            running.remove(uid)

    async def run() -> None:
        paced = Paced(Pace(Rate(100, 100)), {0})
        await asyncio.gather(*(question(paced, uid) for uid in (0, 7, 8) * 5))
        assert most == {0: 5, 7: 1, 8: 1}
        assert not paced._locks

    asyncio.run(run())


def test_who_asks_too_often_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SLOW_S", 0.0)

    async def run() -> None:
        paced = Paced(Pace(Rate(0.01, 2)), {0})
        for _ in range(2):
            async with paced.turn(7):
                pass
        with pytest.raises(ColocError, match="busy: more than") as caught:
            async with paced.turn(7):
                pass
        assert caught.value.code == "busy"
        async with paced.turn(8):
            pass

    asyncio.run(run())


def test_a_user_whose_question_hangs_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "WAIT_S", 0.05)

    async def run() -> None:
        paced = Paced(Pace(Rate(100, 100)), {0})
        async with paced.turn(7):
            with pytest.raises(ColocError, match="under way"):
                async with paced.turn(7):
                    pass
        async with paced.turn(7):
            pass

    asyncio.run(run())
