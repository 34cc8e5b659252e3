# SPDX-License-Identifier: Apache-2.0
"""Logs of running jobs, look by look; what a look reads is tests/unit/hooks/test_joblog.py's."""

import asyncio
import time

import pytest

from slurm_coloc.adapters.joblog.borrow import NO_ANSWER
from slurm_coloc.flow.measure import log_progress
from slurm_coloc.flow.measure.log_progress import LogProgress, _Watched
from slurm_coloc.flow.node.jobs_here import Job

JOB = Job(7, 0, 1000, time.time(), ())


def test_a_log_that_gives_no_answer_is_left_alone_for_longer_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A busy node misses one look; a dead file server must not cost a thread each time."""
    told: list[object] = []
    monkeypatch.setattr(LogProgress, "_read", lambda self, job: told[-1])
    progress = LogProgress(None, list)  # type: ignore[arg-type]
    watched = _Watched(JOB)

    def look(answer: object) -> float:
        told.append(answer)
        asyncio.run(progress._update(watched))
        return watched.not_before_s - time.monotonic()

    waits = [look(NO_ANSWER) for _ in range(6)]
    assert waits == [pytest.approx(wait, abs=1) for wait in (60, 120, 240, 480, 600, 600)]
    look(log_progress.Said())
    assert look(NO_ANSWER) == pytest.approx(60, abs=1)
