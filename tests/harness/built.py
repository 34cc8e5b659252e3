# SPDX-License-Identifier: Apache-2.0
"""The C parts that tests need, built once a run for all workers and all labs.

A build of emulator and plugin takes six seconds of a core, and a run brings up some ninety labs.
"""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EMULATOR = "slurm_coloc/lab/emulator"
SPANK = "spank"


def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this run's builds lie, the same for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    found = shared / "built"
    found.mkdir(exist_ok=True)
    return found


def built(where: str, into: Path) -> Path:
    """What `make -C where` makes, in a folder of ``into``; AssertionError where it fails."""
    target = into / Path(where).name
    with (into / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        env = {key: value for key, value in os.environ.items() if "MAKE" not in key}
        words = ["make", "-s", "-j2", "-C", str(ROOT / where), f"BUILD={target}"]
        done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return target
