# SPDX-License-Identifier: Apache-2.0
"""The Epilog's last look: whose a process was that began after the agent's."""

import time
from pathlib import Path

import pytest

from slurm_coloc.core.gpu.peak import Use
from slurm_coloc.core.gpu.telemetry.use import RunUse
from slurm_coloc.flow.finish.final_usage import Others
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
