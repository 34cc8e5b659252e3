# SPDX-License-Identifier: Apache-2.0
"""A store that knows the job of placers.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import parse_config
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.watch.adopt import adopt
from tests.unit.flow.placers import MARK, SHAPE


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store.open(tmp_path)
    view = JobView(7, "PENDING", uid=1000, admin_comment=MARK, tres_per_node="gres/shard:12",
                   partition="gpu")  # fmt: skip
    config = parse_config({}, "test")
    assert adopt(config, found, SHAPE, view)
    yield found
    found.close()
