# SPDX-License-Identifier: Apache-2.0
"""What people's questions may cost the process that slurmctld's hook waits for."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurm_coloc.core.peer import Peer
from slurm_coloc.core.rates import Rate
from slurm_coloc.daemon import for_front
from slurm_coloc.daemon.for_front import ForFront
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.daemon.requests import Requests
from slurm_coloc.errors import ColocError


class Colocd:
    """A main process whose looks at Slurm last until they are released."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.released = asyncio.Event()
        parts, requests = SimpleNamespace(watcher=self), SimpleNamespace(handle=self.handle)
        self.inside = ForFront(cast(Parts, parts), cast(Requests, requests))

    async def freshen(self, uid: int) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await self.released.wait()
        self.running -= 1

    async def handle(self, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        return {"uid": peer.uid, "op": message["op"]}


def test_questions_are_few_and_a_nodes_message_passes_them() -> None:
    async def run() -> None:
        colocd = Colocd()
        asked = [
            asyncio.create_task(colocd.inside.answer("freshen", {"uid": uid})) for uid in range(60)
        ]
        await asyncio.sleep(0)
        relayed = {"peer": {"uid": 0}, "message": {"op": "beat"}}
        assert await colocd.inside.answer("relay", relayed) == {"uid": 0, "op": "beat"}
        assert colocd.running == for_front.QUESTIONS
        colocd.released.set()
        await asyncio.gather(*asked)
        assert colocd.most == for_front.QUESTIONS

    asyncio.run(run())


def test_all_users_together_have_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(for_front, "PEOPLE", Rate(0.001, for_front.PEOPLE.burst))

    async def run() -> None:
        colocd = Colocd()
        colocd.released.set()
        told = await asyncio.gather(
            *(colocd.inside.answer("freshen", {"uid": uid}) for uid in range(200)),
            return_exceptions=True,
        )
        refused = [one for one in told if isinstance(one, ColocError)]
        assert len(refused) == 200 - for_front.PEOPLE.burst
        assert {one.code for one in refused} == {"busy"}

    asyncio.run(run())


def test_no_other_op_is_known() -> None:
    async def run() -> None:
        with pytest.raises(ColocError, match="unknown op"):
            await Colocd().inside.answer("answer", {})

    asyncio.run(run())
