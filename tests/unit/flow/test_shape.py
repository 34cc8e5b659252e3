# SPDX-License-Identifier: Apache-2.0
"""A cluster that was restarted since colocd saw it is known as such."""

import asyncio
import time

import pytest

from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.shape import ShapeCache

SHAPE = ClusterShape("test", ())


class OneCall:
    """The one question that ShapeCache asks."""

    away = slow = False

    async def shape(self) -> ClusterShape:
        if self.away:
            raise SlurmError("away", "slurm-away")
        await asyncio.sleep(0.2 * self.slow)
        return SHAPE


def test_a_clock_that_was_set_back_makes_no_shape_older(monkeypatch: pytest.MonkeyPatch) -> None:
    """slurmctld began with a clock two hours ahead; colocd reads the cluster after it was set."""

    async def life() -> None:
        seen = ShapeCache(OneCall())  # type: ignore[arg-type]
        loaded_ms = int(time.monotonic() * 1000) - 1
        monkeypatch.setattr(time, "time", lambda: 1.7e9 - 7200)
        await seen.refresh()
        seen.refresh = None  # type: ignore[assignment,method-assign]
        assert not await seen.is_stale(loaded_ms, 1)

    asyncio.run(life())


def test_a_shape_older_than_the_hook_is_asked_for_again() -> None:
    async def life() -> None:
        slurm = OneCall()
        seen = ShapeCache(slurm)  # type: ignore[arg-type]
        assert not await seen.is_stale(None, 1), "a hook that does not tell"
        await seen.refresh()
        first_s = seen.at_s
        assert not await seen.is_stale(int(time.monotonic() * 1000) - 1000, 1)
        assert seen.at_s == first_s, "nothing to ask for"
        loaded_ms = int(time.monotonic() * 1000) + 50
        slurm.away = True
        assert await seen.is_stale(loaded_ms, 1)
        assert seen.shape is SHAPE, "what was seen stays"
        slurm.away = False
        while time.monotonic() * 1000 <= loaded_ms + 1:
            await asyncio.sleep(0.01)
        assert not await seen.is_stale(loaded_ms, 1), "asked just now"
        slurm.slow = True
        later_ms = int(time.monotonic() * 1000) + 1
        await asyncio.sleep(0.01)
        assert await seen.is_stale(later_ms, 0.05), "no answer in time"
        await asyncio.sleep(0.4)
        assert not await seen.is_stale(later_ms, 0.05), "it came later"

    asyncio.run(life())
