# SPDX-License-Identifier: Apache-2.0
"""What DDP adds, as PyTorch allocates it."""

import pytest

pytest.importorskip("torch", reason="torch is not installed: DDP needs it")

from estimator.evaluate import ddp
from slurm_coloc.estimate.replay.allocator import MIB


def test_ddp_adds_its_buckets_and_nothing_else() -> None:
    """Two processes; three layers of a million parameters, so 11 MiB of gradients."""
    found = ddp.compare(ddp.LINEAR, 8)
    assert found.expected == 3 * 1001 * 1000 * 4
    assert found.wrapped - found.alone > 11 * MIB
    assert abs(found.off) < 0.001, ddp.line(found)
