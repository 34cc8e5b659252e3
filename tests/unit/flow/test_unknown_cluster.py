# SPDX-License-Identifier: Apache-2.0
"""Submissions while colocd does not know the cluster yet, or not any more."""

import asyncio
from pathlib import Path

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import parse_config
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.flow.submit.decide import Decider
from tests.unit.flow.test_after_answers import MESSAGE, OPTIONS
from tests.unit.flow.test_history import SHAPE

CONFIG = parse_config({"version": 1, "mode": {"default": "on"}}, "test")


@pytest.mark.parametrize(("shape", "stale"), [(None, False), (SHAPE, True)])
def test_a_job_has_a_whole_gpu_and_a_component_what_it_asked_for(
    tmp_path: Path, shape: ClusterShape | None, stale: bool
) -> None:
    """sbatch gives --coloc to every component of a heterogeneous job; one may be for CPUs alone."""
    decider = Decider(CONFIG, Store.open(tmp_path))
    message = {key: value for key, value in MESSAGE.items() if not key.startswith("tres_")}
    message |= {"coloc": OPTIONS}
    alone = asyncio.run(decider.submit(message, shape, stale=stale))
    part = asyncio.run(decider.submit(message | {"het": True}, shape, stale=stale))
    assert (alone["action"], alone["reason"]) == ("exclusive", "no-shape")
    assert alone["set.tres_per_node"] == "gres/gpu:1"
    assert (part["action"], part["reason"]) == ("asis", "het-job")
    assert not [name for name in part if name.startswith("set.")]
