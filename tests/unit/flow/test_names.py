# SPDX-License-Identifier: Apache-2.0
"""A program may name itself with any bytes (prctl PR_SET_NAME): neither colocd's log nor its
answers carry them to a terminal."""

import io
import sys
from collections.abc import Iterator

import pytest
import structlog

from slurm_coloc.core.recover.fitness import unfit
from slurm_coloc.flow.nodes.prolog import read_launch
from slurm_coloc.logs import set_up_log

NAME = "\x1b]0;root\x07\x1b[2J\u202e"
LAUNCH = {
    "v": 1, "job_id": 7, "restart": 0, "node": "n1",
    "gpus": [{"uuid": "GPU-1", "total_mib": 40960, "free_mib": 100,
              "holders": [{"pid": 9, "uid": 1000, "used_mib": 40000, "name": NAME}]}],
}  # fmt: skip


@pytest.fixture
def restored() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_a_name_in_a_launch_is_printable() -> None:
    [gpu] = read_launch(LAUNCH).gpus
    why = unfit(gpu.now(), 5000)
    assert "process 9" in why
    assert why.isprintable(), why


@pytest.mark.parametrize("form", ["logfmt", "json"])
def test_the_log_is_printable(form: str, monkeypatch: pytest.MonkeyPatch, restored: None) -> None:
    lines = io.StringIO()
    monkeypatch.setattr(sys, "stderr", lines)
    set_up_log(form)
    structlog.get_logger().warning("unfit", why=f"process 9 ({NAME})", names=[NAME], pid=9)
    [line] = lines.getvalue().splitlines()
    assert line.isprintable(), line
    assert "pid=9" in line or '"pid": 9' in line
