# SPDX-License-Identifier: Apache-2.0
"""The agent's tidying of MPS: nothing that goes wrong there ends it, and a fault is told once."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.adapters.mps.node import Reaped
from slurm_coloc.flow.measure import sampler


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sampler.Sampler:
    """One that is root's and tidies at each call."""
    monkeypatch.setattr(sampler, "REAP_S", 0.0)
    made = sampler.Sampler(HookSettings(run_dir=tmp_path), 0)
    monkeypatch.setattr(made, "_root", True)
    return made


@pytest.mark.parametrize("error", [RecursionError("deep"), ValueError("odd"), OSError(5, "I/O")])
def test_no_error_of_tidying_ends_the_samples(
    agent: sampler.Sampler, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> Reaped:
        raise error

    monkeypatch.setattr(sampler.node, "reap", fails)
    with capture_logs() as logs:
        for _ in range(3):
            asyncio.run(agent._reap())
    assert len(logs) == 1 and type(error).__name__ in logs[0]["error"]


def test_each_kind_is_told_once(agent: sampler.Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Reaped(["GPU-1"], ["OSError: [Errno 5] a", "OSError: [Errno 5] b", "KeyError: 'uuid'"])
    monkeypatch.setattr(sampler.node, "reap", lambda *_: found)
    with capture_logs() as logs:
        for _ in range(3):
            asyncio.run(agent._reap())
    assert [one["error"] for one in logs if "error" in one] == [found.faults[0], found.faults[2]]
    assert len([one for one in logs if one.get("gpu") == "GPU-1"]) == 3
