# SPDX-License-Identifier: Apache-2.0
"""Rows of the history as the plan of MIG layouts takes them."""

from typing import Any

import pytest

from slurm_coloc.admin.mig_plan import past_run

ROW: dict[str, Any] = {
    "outcome": "completed",
    "submit_s": 100.0,
    "start_s": 200.0,
    "end_s": 260.0,
    "peak_mib": 4000,
    "smact": 0.4,
    "used": None,
}


def test_a_measured_run() -> None:
    run = past_run(ROW)
    assert run is not None
    assert (run.submit_s, run.run_s, run.peak_mib, run.smact) == (100.0, 60.0, 4000, 0.4)


def test_what_was_measured_alone_counts_before_what_was_predicted() -> None:
    gpu = {"smact_how": "alone", "smact_mean": 0.15}
    run = past_run(ROW | {"used": [{"gpus": [gpu]}]})
    assert run is not None and run.smact == 0.15
    run = past_run(ROW | {"used": [{"gpus": [gpu | {"smact_how": "split"}]}]})
    assert run is not None and run.smact == 0.4
    run = past_run(ROW | {"smact": None})
    assert run is not None and run.smact is None


@pytest.mark.parametrize(
    "other", [{"outcome": "oom-gpu"}, {"peak_mib": None}, {"end_s": None}, {"start_s": None}]
)
def test_a_run_that_says_nothing(other: dict[str, Any]) -> None:
    assert past_run(ROW | other) is None
