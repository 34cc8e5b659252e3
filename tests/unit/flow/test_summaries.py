# SPDX-License-Identifier: Apache-2.0
"""Whose ended jobs come first to a summary."""

from types import SimpleNamespace
from typing import Any

from slurm_coloc.flow.watch.summaries import in_turn


def test_nobodys_many_jobs_come_before_another_users_first() -> None:
    owners = [1000] * 60 + [1001, 1000, 1002, 1001]
    runs: list[Any] = [SimpleNamespace(uid=uid, number=at) for at, uid in enumerate(owners)]
    order = [run.number for run in in_turn(runs)]
    assert order[:5] == [0, 60, 62, 1, 63]
    assert sorted(order) == list(range(len(runs)))
