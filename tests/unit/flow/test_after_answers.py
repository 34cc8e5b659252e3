# SPDX-License-Identifier: Apache-2.0
"""The record of a decision: after the answer, and what happens where the database takes none."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store, after_answers
from slurm_coloc.adapters.store.after_answers import AfterAnswers
from slurm_coloc.config import parse_config
from slurm_coloc.errors import ColocError
from slurm_coloc.estimate.request import WARM_UP
from slurm_coloc.flow.submit.decide import Decider
from slurm_coloc.flow.submit.tickets import Texts
from tests.unit.flow.test_history import SHAPE
from tests.unit.flow.texts import pack, teach

OPTIONS = {"summary": pack(WARM_UP), "batch_size": 64}
MESSAGE: dict[str, Any] = {"v": 1, "op": "submit", "uid": 1001, "tres_per_node": "gres/gpu:1"}


class Desk:
    """A decider that records after its answers, and its database."""

    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder)
        config, texts = parse_config({"version": 1, "mode": {"default": "on"}}, "a test"), Texts()
        self.after = AfterAnswers()
        self.decider = Decider(config, self.store, texts=texts, afterwards=self.after.add)
        teach(texts, config.estimate, 1001, OPTIONS)

    async def submit(self) -> dict[str, str]:
        return dict(await self.decider.submit(MESSAGE | {"coloc": OPTIONS}, SHAPE))

    def recorded(self) -> int:
        return self.store.queries.counts().decisions

    def stuck(self, on: bool) -> None:
        """The database takes nothing, as on a full disk."""
        self.store._db.execute(f"PRAGMA query_only = {'ON' if on else 'OFF'}")


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(after_answers, "AGAIN_S", 0.01)
    return Desk(tmp_path)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.005)


def test_the_answer_does_not_wait_for_the_database(desk: Desk) -> None:
    async def use() -> None:
        answer = await desk.submit()
        assert (answer["action"], desk.recorded()) == ("collocate", 0)
        await until(lambda: desk.recorded() == 1)

    asyncio.run(use())


def test_where_the_database_takes_nothing_one_share_is_given_at_most(desk: Desk) -> None:
    async def use() -> None:
        desk.stuck(on=True)
        first = await desk.submit()
        assert first["action"] == "collocate"
        desk.after.before_next()
        for _ in range(3):  # the hook then gives a whole GPU
            with pytest.raises(ColocError, match="not recorded yet"):
                await desk.submit()
        desk.stuck(on=False)
        await until(lambda: desk.recorded() == 1)
        assert desk.store.decisions.known(first["decision"])
        assert (await desk.submit())["action"] == "collocate"
        await until(lambda: desk.recorded() == 2)

    asyncio.run(use())


def test_the_next_request_finds_it_recorded(desk: Desk) -> None:
    async def use() -> None:
        for number in range(1, 4):
            desk.after.before_next()
            assert desk.recorded() == number - 1
            await desk.submit()

    asyncio.run(use())


def test_what_no_try_helps_holds_up_nothing(desk: Desk) -> None:
    """A job that was seen first, and taken over by its mark; a defect of ours."""

    async def use() -> None:
        done: list[int] = []
        answer = await desk.submit()
        desk.after.before_next()
        taken = desk.store.decisions.of(answer["decision"])
        assert taken is not None
        desk.after.add(lambda: desk.store.decisions.add(taken))  # it is there already
        desk.after.add(lambda: done.append(1 // 0))
        desk.after.add(lambda: done.append(1))
        await until(lambda: done == [1])

    asyncio.run(use())
