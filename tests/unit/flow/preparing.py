# SPDX-License-Identifier: Apache-2.0
"""Estimates with real children, for tests; and estimators that do what a text says.

A child that is to take long or to fail is made by a stand-in for the estimator in the warm process:
its own limits and everything around it are the real ones.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from slurm_coloc.config import EstimateConfig
from slurm_coloc.core.decide.decision import Reason
from slurm_coloc.core.decide.prepared import Estimated, Prepared
from slurm_coloc.estimate.request import WARM_UP, Given
from slurm_coloc.flow.prepare import children
from slurm_coloc.flow.prepare.estimates import Estimates

ADA, BEN, CLEO = 1001, 1002, 1003
GIVEN = Given(batch_size=32)
PATIENT: dict[str, Any] = {"time_limit_ms": 60_000}  # a busy machine may need longer
Found = TypeVar("Found")

#: what a text that begins with a word does in a child
FAULTY = """
import os, signal, sys, time
from slurm_coloc.estimate import variants
from slurm_coloc.estimate.packed import unpack_summary
real = variants.prepared
def prepared(packed, given, defaults):
    text = unpack_summary(packed)
    if text.startswith("spin"):
        while True:
            pass
    if text.startswith("wait"):
        time.sleep(600)
    if text.startswith("costly options") and given.training:
        while True:
            pass
    if text.startswith("pause"):
        time.sleep(0.5)
    if text.startswith("memory"):
        held = []
        while True:
            held.append(bytearray(1 << 20))
    if text.startswith("raise"):
        raise ValueError("what the text holds")
    if text.startswith("signal"):
        os.kill(os.getpid(), signal.SIGSEGV)
    if text.startswith("write"):
        os.write(os.memfd_create("any file"), b"x")
    if text.startswith("fork"):
        os.fork()
    if text.startswith("files"):
        held = [open("/dev/null") for _ in range(100)]
    if text.startswith("answer"):
        class Odd:
            def as_json(self):
                return {"schema": 7}
        return Odd()
    return real(packed, given, defaults)
variants.prepared = prepared
from slurm_coloc.flow.prepare import warm
sys.exit(warm.main())
"""


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


def why(found: Prepared) -> tuple[Reason, str]:
    one = alone(found)
    assert one.estimate is None
    return one.no_estimate, one.detail


async def until(what: Callable[[], Found], limit_s: float = 60) -> Found:
    """The first true value of ``what``."""
    for _ in range(int(limit_s / 0.02)):
        if found := what():
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(f"not within {limit_s} s")


def children_of(made: Estimates) -> list[int]:
    """Processes that estimate a text now."""
    pid = made._children.pid
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def honest(number: int = 0) -> str:
    """A text that nobody sent before, by its number."""
    return WARM_UP.replace("72,010", f"{72_010 + number:,}").replace(
        "72,234", f"{72_234 + number:,}"
    )


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimators that do what a text says."""
    (tmp_path / "faulty_estimators.py").write_text(FAULTY)
    monkeypatch.setattr(children, "PROGRAM", "faulty_estimators")
    monkeypatch.setattr(children, "PACKAGES", f"{children.PACKAGES}:{tmp_path}")
