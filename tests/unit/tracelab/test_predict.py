# SPDX-License-Identifier: Apache-2.0
"""The simulator's word on a lab: the same jobs, the same reservations, the cost of starts."""

from dataclasses import replace
from pathlib import Path

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.sim.trace import TraceJob
from tests.tracelab import report
from tests.tracelab.predict import predict
from tests.tracelab.scale import Scale
from tests.tracelab.ways import WAYS
from tests.tracelab.workload import asked

GPU = 39


def jobs(count: int, memory_mib: int = 12_000) -> list[TraceJob]:
    return [TraceJob(n, "x", 0.0, 1, 600.0, memory_mib, Activity(0.3)) for n in range(1, count + 1)]


def makespan_s(way: str, scale: Scale, count: int = 3, estimator: str = "oracle") -> float:
    found = asked(jobs(count), estimator, GPU, shares=WAYS[way].shares)
    return predict(found, WAYS[way], "1xa100-40gb", scale).makespan_s


def test_whole_gpus_one_after_another() -> None:
    assert makespan_s("exclusive", Scale(30.0)) == pytest.approx(1800)


def test_a_start_costs_its_seconds_of_the_lab() -> None:
    costly = Scale(30.0, start_s=2.0)
    assert makespan_s("exclusive", costly) == pytest.approx(3 * (600 + 60))


def test_a_start_slows_no_neighbour() -> None:
    """The second does nothing in its first 60 s, so the first is as fast as alone in them."""
    two = jobs(2)
    found = asked([two[0], replace(two[1], submit_s=60.0)], "oracle", GPU)
    free = predict(found, WAYS["native"], "1xa100-40gb", Scale(30.0))
    costly = predict(found, WAYS["native"], "1xa100-40gb", Scale(30.0, start_s=2.0))
    beside = 1 / (1 + 1.1 * 0.3**3)
    assert free.records[0].end_s == pytest.approx(60 + 540 / beside)
    # Both begin to work 60 s later, so nothing else changes.
    assert costly.records[0].end_s == pytest.approx(120 + 540 / beside)
    assert costly.makespan_s == pytest.approx(free.makespan_s + 60)


def test_shares_run_beside_each_other() -> None:
    # Three of 0.3: S = 0.6, v = 1/(1 + 1.1 * 0.216) = 0.808
    assert makespan_s("native", Scale(30.0)) == pytest.approx(600 * (1 + 1.1 * 0.6**3), rel=1e-3)


def test_the_gate_holds_off() -> None:
    """Steered: the third comes when the first have ended or telemetry shows room."""
    busy = [replace(job, activity=Activity(0.9)) for job in jobs(2)]
    found = asked(busy, "oracle", GPU)
    scale = Scale(30.0, window_s=3)
    together = predict(found, WAYS["native"], "1xa100-40gb", scale)
    late = [replace(found[0]), replace(found[1], job=replace(busy[1], submit_s=300.0))]
    gated = predict(late, WAYS["steered"], "1xa100-40gb", scale)
    assert together.records[1].start_s == 0
    assert gated.records[1].start_s == pytest.approx(600, abs=130)


def test_a_share_that_is_too_small_runs_out_and_comes_back() -> None:
    one = [replace(job, estimates={"low": 8_000}) for job in jobs(1)]
    found = predict(asked(one, "low", GPU), WAYS["native"], "1xa100-40gb", Scale(30.0))
    assert found.oom == 1 and found.records[0].end_s is not None


def test_the_table_tells_what_was_not_run(tmp_path: Path) -> None:
    scale = Scale(30.0, start_s=1.25)
    found = predict(asked(jobs(2), "oracle", GPU), WAYS["native"], "1xa100-40gb", scale)
    rows = [
        report.Row(WAYS["native"], scale, found, found, found),
        report.Row(WAYS["steered"], scale, why="it needs Slurm 24.11"),
    ]
    run = report.Run("60", 2, "1xa100-40gb", "oracle", "24.11.5", 30.0, 2, 0.5, 3.0)
    text = report.text(run, rows, ["native: said"])
    assert "not run: it needs Slurm 24.11" in text and "1.25 s" in text and "- native: said" in text
    assert "Makespans within 10%: native." in text
    path = tmp_path / "RESULTS.md"
    path.write_text("# Head\n")
    for _ in range(2):
        told = f"talk before\n{report.marked('60', text)}\ntalk after\n"
        assert report.write(path, told) == ["60"]
    assert report.write(path, report.marked("90", "other")) == ["90"]
    assert report.write(path, "nothing of ours") == []
    whole = path.read_text()
    assert whole.startswith("# Head") and whole.count("native: said") == 1 and "other" in whole
    assert "talk" not in whole
