# SPDX-License-Identifier: Apache-2.0
"""The log of a lab's Slurm as the outcome of a trace."""

import os
import time
from collections.abc import Iterator

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.sim.trace import TraceJob
from tests.tracelab.records import Played, lost, recovered, runs
from tests.tracelab.scale import Scale
from tests.tracelab.workload import Submission

# As jobcomp/filetxt of 24.11.5 writes it; job 4 was cancelled before it started.
LINE = (
    "JobId={} UserId=u(1001) GroupId=u(1001) Name=sbatch JobState={} Partition=main TimeLimit=600"
    " StartTime={} EndTime={} NodeList=n1 NodeCnt=1 ProcCnt=1 WorkDir=/w ReservationName="
    " Tres=cpu=1 Account= QOS= WcKey= Cluster=coloc SubmitTime=2026-01-01T10:00:00"
    " EligibleTime=2026-01-01T10:00:00 DerivedExitCode=0:0 ExitCode=0:0 "
)
LOG = "\n".join(
    LINE.format(*words)
    for words in (
        (1, "COMPLETED", "2026-01-01T10:00:02", "2026-01-01T10:00:12"),
        (2, "FAILED", "2026-01-01T10:00:03", "2026-01-01T10:00:04"),
        (2, "REQUEUED", "2026-01-01T10:00:03", "2026-01-01T10:00:05"),
        (4, "CANCELLED", "Unknown", "2026-01-01T10:00:06"),
        (3, "FAILED", "2026-01-01T10:00:06", "2026-01-01T10:00:07"),
        (2, "COMPLETED", "2026-01-01T10:00:10", "2026-01-01T10:00:30"),
    )
)


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Slurm writes local time."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


def job(number: int, submit_s: float) -> Submission:
    return Submission(TraceJob(number, "x", submit_s, 1, 100.0, 1000, Activity(0.5)), 5)


def test_each_run_counts_once() -> None:
    found = [(run.job_id, run.state, run.end_s - run.start_s) for run in runs(LOG)]
    assert found == [(1, "COMPLETED", 10), (2, "FAILED", 1), (3, "FAILED", 1), (2, "COMPLETED", 20)]
    assert runs("") == [] and runs("JobId=x\n\n") == []


def test_the_outcome_is_in_seconds_of_the_trace() -> None:
    began = runs(LOG)[0].start_s - 2
    ids = {11: 1, 12: 2, 13: 3, 14: 4}
    played = Played(began, ids, runs(LOG), {12: 1, 13: 1}, 50.0)
    found = played.outcome([job(11, 0.0), job(12, 10.0), job(13, 20.0), job(14, 30.0)], Scale(10.0))
    assert found.makespan_s == pytest.approx(300)
    one, two, three, four = found.records
    assert (one.start_s, one.end_s, one.ran_s, one.tries) == (20, 120, 100, 1)
    assert (two.start_s, two.end_s, two.ran_s, two.last_s, two.tries) == (30, 300, 210, 200, 2)
    assert three.end_s is None and four.start_s is None
    assert (found.oom, recovered(found), lost(found)) == (2, 1, 2)
    assert found.joules == 500
    figures = found.figures()
    # Job 11: submitted at 0, ended at 120, ran 100. Job 12: at 10, 300, 210.
    assert figures["mean_wait_s"] == pytest.approx((20 + 80) / 2)
    assert figures["mean_jct_s"] == pytest.approx((120 + 290) / 2)
