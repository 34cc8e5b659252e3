# SPDX-License-Identifier: Apache-2.0
"""What steering may do by the configuration, and by the ways to wait that a cluster offers."""

import pytest

from slurm_coloc.config import Config
from slurm_coloc.config.placement import PlacementConfig
from slurm_coloc.core.place.gate_wait import Way
from slurm_coloc.flow.place.rules import rules_of


@pytest.mark.parametrize(
    ("plan", "way", "reorder"),
    [
        ("off", Way.START, False),
        ("where", Way.START, False),
        ("order", Way.START, True),
        ("order", Way.EXTRA, True),
        ("order", Way.NONE, False),  # a job that waits would lose its age
    ],
)
def test_jobs_change_places_only_where_that_costs_no_age(
    plan: str, way: Way, reorder: bool
) -> None:
    config = Config(placement=PlacementConfig.model_validate({"plan": plan}))
    assert rules_of(config, way).reorder is reorder
