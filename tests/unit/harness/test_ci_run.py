# SPDX-License-Identifier: Apache-2.0
"""`.ci/run` with programs that do nothing: its lanes, its summary, and that it leaves nothing."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


class Check:
    """A copy of `.ci/run` beside programs of our own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (".ci", "docker", "bin", "tmp"):
            (folder / name).mkdir()
        (folder / ".ci/run").write_text((ROOT / ".ci/run").read_text())
        for name in ("docker/engine", "docker/base-image", "docker/cluster", "bin/apt-get"):
            self.program(name, "exit 0")
        self.program("bin/docker", "exit 0")
        self.program("docker/test-in", 'echo "==== 3 passed in 0.10s ===="')
        self.program("bin/make", "exit 0")

    def program(self, name: str, script: str) -> None:
        """Write one of them."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def start(self) -> "subprocess.Popen[str]":
        """Run it in a process group of its own."""
        return subprocess.Popen(
            ["bash", ".ci/run"],
            cwd=self.folder,
            env={
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                "TMPDIR": str(self.folder / "tmp"),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def check(tmp_path: Path) -> Iterator[Check]:
    yield Check(tmp_path)


def test_the_last_line_is_the_summary_of_the_tests(check: Check) -> None:
    run = check.start()
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 0, said
    assert said.splitlines()[-1] == "==== 3 passed in 0.10s ===="
    assert list((check.folder / "tmp").iterdir()) == []


def test_a_step_that_fails_fails_the_run_and_is_named(check: Check) -> None:
    check.program("bin/make", '[ "$1" != lint ] || { echo "E  a long line"; exit 3; }')
    run = check.start()
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert re.search(r"^lint +\S+ +\S+  FAILED \(3\)$", said, re.MULTILINE)
    assert "E  a long line" in said
    assert said.splitlines()[-1] == "ci: failed, but no test did: see the steps above"


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_run_that_is_ended_ends_its_steps(check: Check, whole_group: bool) -> None:
    """A step has a process group of its own, because of its limit: one that lives on removed the
    cluster of the next run."""
    hangs = 'echo $$ >>"$(dirname "$0")/../hang"; trap "exit 143" TERM; sleep 100 & wait'
    for name in ("docker/test-in", "bin/make", "docker/cluster"):
        check.program(name, hangs)
    run = check.start()
    begun = check.folder / "hang"
    until = time.monotonic() + 30
    while not begun.exists() or len(begun.read_text().split()) < 3:
        assert time.monotonic() < until, "three lanes begin"
        time.sleep(0.05)
    if whole_group:
        os.killpg(run.pid, signal.SIGTERM)
    else:
        run.terminate()
    run.wait(timeout=60)
    for pid in begun.read_text().split():
        assert not Path(f"/proc/{pid}").exists(), f"step {pid} lives on"
    assert list((check.folder / "tmp").iterdir()) == []
