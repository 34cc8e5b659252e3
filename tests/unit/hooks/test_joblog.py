# SPDX-License-Identifier: Apache-2.0
"""A line into the log of a running job: into that file, with the user's rights, or not at all."""

import os
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from slurm_coloc.adapters import joblog, userfile

from .conftest import USER

pytestmark = pytest.mark.usefixtures("as_root", "may_trace")
BECOME = partial(userfile.become, userfile.Owner(USER, USER, ""))
LIMIT_S = 5.0

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """A process of the user's with this standard output and error; its pid."""
    made: list[subprocess.Popen[bytes]] = []

    def one(out: int, err: int) -> int:
        made.append(
            subprocess.Popen(["sleep", "60"], stdout=out, stderr=err, user=USER, group=USER)
        )
        return made[-1].pid

    yield one
    for process in made:
        process.kill()
        process.wait()


def opened(path: Path, flags: int = os.O_WRONLY | os.O_CREAT | os.O_APPEND) -> int:
    fd = os.open(path, flags, 0o600)
    os.fchown(fd, USER, USER)
    return fd


def append(pids: list[int], *inodes: int) -> str:
    return joblog.append(BECOME, pids, inodes, "coloc: told", LIMIT_S)


def test_it_goes_where_the_jobs_next_line_would(work: Path, start: Start) -> None:
    fd = opened(work / "log", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"step 1")
    pid = start(fd, fd)
    assert append([pid], os.fstat(fd).st_ino) == ""
    os.write(fd, b"step 2\n")
    assert (work / "log").read_text() == "step 1\ncoloc: told\nstep 2\n"


def test_only_the_log_is_written(work: Path, start: Start) -> None:
    """A program that sends its own output elsewhere: nothing of the user's is written to but the
    file that slurmstepd opened."""
    log, other = opened(work / "log"), opened(work / "other")
    inode = os.fstat(log).st_ino
    elsewhere = start(other, other)
    assert append([elsewhere], inode) == "none of its processes has its log open"
    script = start(other, log)
    assert append([elsewhere, 2**22 - 1, script], inode) == ""
    assert (work / "other").read_text() == ""
    assert (work / "log").read_text() == "\ncoloc: told\n"


def test_what_is_no_file_is_not_written(work: Path, start: Start) -> None:
    readable, writable = os.pipe()
    pid = start(writable, writable)
    assert append([pid], os.fstat(writable).st_ino) == "none of its processes has its log open"
    assert append([pid], 0) == "its log is no regular file"
    os.set_blocking(readable, False)
    with pytest.raises(BlockingIOError):
        os.read(readable, 1)


def test_a_file_that_may_not_be_written(work: Path, start: Start) -> None:
    opened(work / "log")
    fd = os.open(work / "log", os.O_RDONLY)
    assert append([start(fd, fd)], os.fstat(fd).st_ino) == "bad file descriptor"
    assert (work / "log").read_text() == ""


def test_a_disk_that_is_full(start: Start) -> None:
    fd = os.open("/dev/full", os.O_WRONLY)
    assert append([start(fd, fd)], os.fstat(fd).st_ino) == "none of its processes has its log open"


def test_a_child_that_hangs_is_not_waited_for(work: Path, start: Start) -> None:
    """As on a dead file server."""
    fd = opened(work / "log")
    pid = start(fd, fd)
    hangs = partial(os.read, os.pipe()[0], 1)
    inodes = (os.fstat(fd).st_ino,)
    assert joblog.append(hangs, [pid], inodes, "x", 0.2) == "no answer in time"
    assert (work / "log").read_text() == ""
