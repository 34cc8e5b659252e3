# SPDX-License-Identifier: Apache-2.0
"""The Epilog's last look: whose a process was that began after the agent's."""

import time
from pathlib import Path

import pytest

from slurm_coloc.core.gpu.peak import Use
from slurm_coloc.core.gpu.telemetry.use import RunUse
from slurm_coloc.flow.finish.final_usage import Others, used
from slurm_coloc.flow.node import records

GPU = "GPU-5a3b1c2d-0000-1111-2222-333344445555"
NOW_S = time.time()
BRIEF = Use(1190, NOW_S - 1.0, NOW_S - 0.5, 34_200)


@pytest.mark.parametrize(
    ("gpu", "ago_s", "whose"), [(GPU, 2.0, None), (GPU, 60.0, 7), ("GPU-another", 2.0, 7)]
)
def test_a_neighbour_that_has_just_left(
    tmp_path: Path, gpu: str, ago_s: float, whose: int | None
) -> None:
    record = RunUse(8, 0, NOW_S - 90).record()
    records.write(tmp_path, {**record, "gpus": [{"uuid": gpu}], "until_s": NOW_S - ago_s})
    assert Others(tmp_path, 7).job_of(GPU, BRIEF) == whose


def test_a_neighbour_whose_gpu_the_agent_never_learned(tmp_path: Path) -> None:
    """It ended at once: its record has no GPU yet, so it may have been on any."""
    records.write(tmp_path, RunUse(8, 0, NOW_S - 2.0).record())
    assert Others(tmp_path, 7).job_of(GPU, BRIEF) is None
    assert (
        Others(tmp_path, 7).job_of(GPU, BRIEF._replace(start_s=NOW_S + 10, end_s=NOW_S + 11)) == 7
    )


def test_a_neighbour_that_no_sample_met_leaves_a_trace(tmp_path: Path) -> None:
    """Four jobs of one GPU were cancelled in their second second: one had another's process."""
    (tmp_path / records.FOLDER).mkdir(mode=0o755)
    notes: list[str] = []
    state = {"job_id": 8, "restart": 0, "started_s": NOW_S - 2.0,
             "gpu": {"devices": [{"uuid": GPU}]}}  # fmt: skip
    assert used(tmp_path, state, {GPU: [BRIEF]}, NOW_S, notes)
    assert notes == []
    assert Others(tmp_path, 7).job_of(GPU, BRIEF) is None
    [left] = records.every(tmp_path)
    assert left["until_s"] == pytest.approx(NOW_S, abs=0.01) and not left["complete"]


def test_so_does_one_whose_agent_was_away_at_its_end(tmp_path: Path) -> None:
    began_s = NOW_S - 600
    record = RunUse(8, 0, began_s).record()
    records.write(tmp_path, {**record, "gpus": [{"uuid": GPU}], "until_s": NOW_S - 300})
    state = {"job_id": 8, "restart": 0, "started_s": began_s}
    assert Others(tmp_path, 7).job_of(GPU, BRIEF) == 7
    used(tmp_path, state, {GPU: [BRIEF]}, NOW_S, [])
    assert Others(tmp_path, 7).job_of(GPU, BRIEF) is None


@pytest.mark.parametrize("accounting", [True, False])
def test_a_run_that_no_sample_met_has_what_the_driver_knows(
    tmp_path: Path, accounting: bool
) -> None:
    """A job that ran out of memory at once: its report said of no limit what held it."""
    (tmp_path / records.FOLDER).mkdir(mode=0o755)
    state = {"job_id": 8, "restart": 0, "started_s": NOW_S - 2.0,
             "gpu": {"devices": [{"uuid": GPU}]}}  # fmt: skip
    found = used(tmp_path, state, {GPU: [BRIEF]} if accounting else None, NOW_S, [])
    assert found is not None and found["samples"] == 0
    assert found["complete"] is accounting
    assert [one["peak_mib"] for one in found["gpus"]] == [34_200 if accounting else 0]


def test_without_an_agent_nothing_is_left_behind(tmp_path: Path) -> None:
    state = {"job_id": 8, "restart": 0, "started_s": NOW_S - 2.0, "gpu": {"devices": []}}
    assert used(tmp_path, state, None, NOW_S, []) is None
    assert list(tmp_path.iterdir()) == []
