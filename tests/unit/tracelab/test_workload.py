# SPDX-License-Identifier: Apache-2.0
"""What a job of a trace reserves, and the summary that makes colocd reserve it."""

from pathlib import Path

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.trace import TraceJob
from tests.tracelab.summaries import linear, reserved, summary
from tests.tracelab.workload import asked, trace

GPU = 39  # shards of an A100-40GB


def job(memory_mib: int, gpus: int = 1, **more: object) -> TraceJob:
    return TraceJob(1, "x", 0.0, gpus, 60.0, memory_mib, Activity(0.5), **more)  # type: ignore[arg-type]


def shards(one: TraceJob, estimator: str = "oracle") -> int:
    return asked([one], estimator, GPU)[0].shards


def test_a_share_is_sized_as_colocd_does() -> None:
    assert shards(job(20 * 1024)) == 20
    assert shards(job(20 * 1024 + 1)) == 21
    assert shards(job(600)) == 5, "at most eight jobs on a GPU"
    assert shards(job(38 * 1024)) == 38
    assert shards(job(38 * 1024 + 1)) == 0, "what fills a GPU gets a whole one"
    assert shards(job(2000, gpus=2)) == 0
    assert shards(job(2000, coloc=False)) == 0
    assert [one.shards for one in asked([job(2000)], "oracle", GPU, shares=False)] == [0]


def test_an_estimator_of_the_trace() -> None:
    one = job(20_000, estimates={"mine": 8000})
    assert shards(one, "mine") == 8
    assert asked([one], "mine", GPU)[0].need_mib == 8 * 1024
    assert shards(job(20_000, estimates={"mine": None}), "mine") == 0
    with pytest.raises(UsageFault, match="no column other_mib"):
        shards(one, "other")


@pytest.mark.parametrize("wanted", [5, 6, 14, 24, 38])
def test_a_summary_of_each_size(wanted: int) -> None:
    assert reserved(summary(wanted, GPU), GPU) == wanted


def test_a_summary_stays_small() -> None:
    """The plugin forwards some KiB."""
    assert len(linear(2400)) < 16_000
    assert f"Total params: {2400 * 1_000_000:,}" in linear(2400)


def test_the_trace_that_is_shipped() -> None:
    jobs = trace("example")
    assert len(jobs) == 40 and min(one.submit_s for one in jobs) == 0


def test_a_file_begins_at_its_first_job(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "job,name,submit_s,gpus,run_s,memory_mib,smact\n1,a,50,1,60,2000,0.5\n2,b,80,1,60,2000,0.5\n"
    )
    assert [one.submit_s for one in trace(str(path))] == [0, 30]


def test_without_the_facts_the_thesis_traces_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLOC_FACTS", str(tmp_path))
    with pytest.raises(UsageFault, match="no part of this project"):
        trace("60")
