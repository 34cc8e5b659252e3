# SPDX-License-Identifier: Apache-2.0
"""What `coloc doctor` says of MIG devices."""

from dataclasses import replace

from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.admin.rules.mig_checks import mig
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape

NODE = NodeShape("n1", ("main",), (), "a100", 1, 39, slices=(("1g.5gb", 7),))
SHAPE = ClusterShape("c", (24, 11, 5), (NODE,))


def test_no_mig_no_word() -> None:
    assert list(mig(replace(SHAPE, nodes=(replace(NODE, slices=()),)))) == []


def test_untyped_requests_are_warned_of_until_the_hook_types_them() -> None:
    known, untyped = mig(SHAPE)
    assert known.status is Status.OK
    assert untyped.status is Status.WARN
    assert 'whole_type = "a100"' in untyped.todo
    assert [one.status for one in mig(SHAPE, ["a100"])] == [Status.OK, Status.OK]
    assert [one.status for one in mig(SHAPE, ["h100"])][1] is Status.WARN


def test_several_types_cannot_be_named() -> None:
    both = replace(SHAPE, nodes=(NODE, NodeShape("n2", ("main",), (), "h100", 4, 0)))
    assert "several types" in list(mig(both, ["a100"]))[1].found
    alone = replace(SHAPE, nodes=(replace(NODE, gpus=0, gpu_type=None, shards=0),))
    assert [one.status for one in mig(alone)] == [Status.OK, Status.OK]


def test_a_profile_that_no_card_has() -> None:
    odd = replace(SHAPE, nodes=(replace(NODE, slices=(("1g.99gb", 1),)),))
    assert next(iter(mig(odd))).status is Status.WARN
