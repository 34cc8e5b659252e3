# SPDX-License-Identifier: Apache-2.0
"""coloc doctor sees a job_submit.lua that still names the socket that users can reach."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from slurm_coloc.admin.doctor import hooks
from slurm_coloc.admin.doctor.colocd import _hook_socket
from slurm_coloc.admin.doctor.slurm import Slurm
from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.config import Config

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = (ROOT / "etc" / "job_submit.lua").read_text()
OLD = SAMPLE.replace("/run/slurm-coloc/hook/colocd.sock", "/run/slurm-coloc/colocd.sock")
COMMENT = SAMPLE + '\n-- socket = "/run/slurm-coloc/colocd.sock", until 2026\n'


@pytest.mark.parametrize(
    ("text", "status"),
    [(SAMPLE, Status.OK), (OLD, Status.WARN), (COMMENT, Status.OK), ("", Status.FAIL)],
    ids=["new", "old", "comment", "none"],
)
def test_the_socket_that_job_submit_names(tmp_path: Path, text: str, status: Status) -> None:
    (tmp_path / "job_submit.lua").write_text(text)
    slurm = SimpleNamespace(conf={"SLURM_CONF": str(tmp_path / "slurm.conf")})
    found = hooks._job_submit(Config(), cast(Slurm, slurm))
    assert found.status is status, found
    if status is Status.WARN:
        assert "hook/colocd.sock" in found.todo


def test_the_folder_of_the_hooks_socket(tmp_path: Path) -> None:
    folder = tmp_path / "hook"
    socket, owner = folder / "colocd.sock", tmp_path.stat().st_uid
    assert _hook_socket(socket, {owner}).status is Status.WARN
    folder.mkdir(mode=0o700)
    assert _hook_socket(socket, {owner}).status is Status.OK
    assert _hook_socket(socket, {owner + 1}).status is Status.FAIL
    folder.chmod(0o755)
    assert _hook_socket(socket, {owner}).status is Status.FAIL
