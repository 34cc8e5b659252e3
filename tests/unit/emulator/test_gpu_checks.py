# SPDX-License-Identifier: Apache-2.0
"""make test-gpu on the emulated GPU: it says so, and all but its long checks hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "gpu" / "run.py"
SHORT = (
    "MPS",
    "MPS limits",
    "two users",
    "ended clients",
    "cgroup limits",
    "agent",
    "looks",
    "hooks",
)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: daemons run as another user")
def test_it_says_where_it_runs_and_what_it_found(emulator: Path) -> None:
    env = {name: text for name, text in os.environ.items() if not name.startswith("COLOC_")}
    done = subprocess.run(
        [sys.executable, RUN, *SHORT], env=env, capture_output=True, text=True, timeout=240
    )
    lines = done.stdout.splitlines()
    assert "no real GPU" in lines[0] or "real hardware" in lines[0], done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert "MPS starts and stops" in done.stdout
    assert " 0 false, " in lines[-1]


def test_an_unknown_check_is_named() -> None:
    done = subprocess.run([sys.executable, RUN, "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "needs root" in done.stderr or "no check nonsense" in done.stderr
