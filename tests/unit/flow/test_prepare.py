# SPDX-License-Identifier: Apache-2.0
"""Texts are estimated in limited children: what a text does costs neither the others nor colocd."""

import asyncio
import base64
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.prepared import Estimated, Prepared
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.flow.prepare.estimates import Estimates

ADA, BEN, CLEO = 1001, 1002, 1003
GIVEN = Given(batch_size=32)
#: a busy machine may need longer than a user waits
PATIENT: dict[str, Any] = {"time_limit_ms": 60_000}
Found = TypeVar("Found")


def pack(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def with_estimates(work: Callable[[Estimates], Awaitable[Found]], **config: Any) -> Found:
    """What ``work`` gives with estimates that are ready."""

    async def run() -> Found:
        made = Estimates(EstimateConfig(**PATIENT | config))
        try:
            await made.start()
            await asyncio.wait_for(made._children._ready.wait(), 60)
            return await work(made)
        finally:
            made.close()

    return asyncio.run(run())


def alone(found: Prepared) -> Estimated:
    return found.of("", "", 1)


def test_a_text_has_an_estimate_for_one_process_and_for_several() -> None:
    found = with_estimates(lambda made: made.prepare(ADA, pack(WARM_UP), GIVEN))
    one, several = found.of("", "a100-40gb", 1).estimate, found.of("", "", 4).estimate
    assert one and several and one.upper_mib < several.upper_mib
    assert one.smact is not None and several.smact is None, "the card is not known"


async def until(what: Callable[[], Found], limit_s: float = 60) -> Found:
    """The first true value of ``what``."""
    for _ in range(int(limit_s / 0.02)):
        if found := what():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {limit_s} s")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def slow(number: int) -> str:
    """A text whose reading takes minutes where nothing ends it, made anew for each number."""
    raise NotImplementedError
