# SPDX-License-Identifier: Apache-2.0
"""Files about jobs on a node are root's alone to read, also those of an earlier release."""

import os
from pathlib import Path

import pytest

from slurm_coloc.errors import ConfigError
from slurm_coloc.flow.node import records
from slurm_coloc.flow.node.jobs_here import close_to_others

RECORD = {"job_id": 7, "restart": 0}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_what_an_earlier_release_left_is_closed(tmp_path: Path) -> None:
    run_dir = tmp_path / "jobs"
    (run_dir / "mps").mkdir(parents=True)
    run_dir.chmod(0o755)
    files = [run_dir / f"7.{suffix}" for suffix in ("json", "share", "fence", "step", "logs")]
    for file in files:
        file.write_text("{}")
        file.chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("")
    elsewhere.chmod(0o644)
    (run_dir / "link").symlink_to(elsewhere)
    os.mkfifo(run_dir / "pipe", 0o644)
    close_to_others(run_dir)
    assert {mode(file) for file in files} == {0o600}
    assert mode(run_dir) == 0o711, "others pass through to their MPS pipe"
    assert mode(elsewhere) == 0o644
    assert mode(run_dir / "mps") == 0o755, "not a file"


def test_where_no_prolog_has_been(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        close_to_others(tmp_path / "none")


def test_records_are_closed(tmp_path: Path) -> None:
    (tmp_path / "use").mkdir(mode=0o755)
    records.write(tmp_path, RECORD)
    assert mode(tmp_path / "use") == 0o700
    assert mode(tmp_path / "use" / "7.0.json") == 0o600
