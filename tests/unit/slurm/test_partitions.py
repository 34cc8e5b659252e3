# SPDX-License-Identifier: Apache-2.0
"""What `scontrol show partition` says of users, in the words of each release."""

import pytest

from slurm_coloc.adapters.slurm.commands.shape import partition_shape


@pytest.mark.parametrize(
    ("shown", "apart"),
    [
        ({"ExclusiveUser": "YES"}, True),  # to 25.x
        ({"ExclusiveUser": "NO", "ExclusiveTopo": "NO"}, False),
        ({"Exclusive": "USER"}, True),  # 26.05
        ({"Exclusive": "USER,TOPO"}, True),
        ({"Exclusive": "NO"}, False),
        ({"Exclusive": "TOPO"}, False),
        ({}, False),
    ],
)
def test_whether_a_partition_keeps_users_apart(shown: dict[str, str], apart: bool) -> None:
    assert partition_shape({"PartitionName": "main", **shown}).exclusive_user is apart
