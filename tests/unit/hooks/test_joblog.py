# SPDX-License-Identifier: Apache-2.0
"""A line into the log of a running job, and a look at it: that file, with the user's rights, or not
at all."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from slurm_coloc.adapters import userfile
from slurm_coloc.adapters.joblog import append as adapter
from slurm_coloc.adapters.joblog.numbers import checked, read_numbers
from slurm_coloc.core.time.progress.reading import Said

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
    return adapter.append(BECOME, pids, inodes, "coloc: told", LIMIT_S)


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
    hangs = partial(time.sleep, 60)
    inodes = (os.fstat(fd).st_ino,)
    assert adapter.append(hangs, [pid], inodes, "x", 0.2) == "no answer in time"
    assert (work / "log").read_text() == ""


def looked(pids: list[int], *inodes: int, limit_s: float = LIMIT_S) -> Said | str:
    return read_numbers(BECOME, pids, dict.fromkeys(inodes, 0), limit_s)


def test_a_look_gives_numbers_of_a_log_that_was_opened_for_writing(
    work: Path, start: Start
) -> None:
    fd = opened(work / "log")
    os.write(fd, b"secret words\nEpoch 3/10:  45%|####   | 450/1000 [01:30<01:50, 5.0it/s]\r")
    found = looked([start(fd, fd)], os.fstat(fd).st_ino)
    assert isinstance(found, Said)
    assert (found.epoch, found.epochs, found.step, found.steps) == (3, 10, 450, 1000)
    assert all(isinstance(one, bool | float | None) for one in found)


def test_a_look_reads_this_runs_part(work: Path, start: Start) -> None:
    """What an earlier run wrote into the same file is not of this one."""
    fd = opened(work / "log")
    os.write(fd, b"Epoch 9/10 loss 0.1\n")
    pid, inode = start(fd, fd), os.fstat(fd).st_ino
    before = os.fstat(fd).st_size
    assert read_numbers(BECOME, [pid], {inode: before}, LIMIT_S) == Said()
    os.write(fd, b"Epoch 1/10 loss 0.9\n")
    found = read_numbers(BECOME, [pid], {inode: before}, LIMIT_S)
    assert isinstance(found, Said) and (found.epoch, found.first) == (1, 1)


def test_output_and_errors_in_two_files(work: Path, start: Start) -> None:
    out, err = opened(work / "out"), opened(work / "err")
    os.write(out, b"Epoch 3/10\n")
    os.write(err, b" 45%|####   | 450/1000 [01:30<01:50, 5.0it/s]\r")
    found = looked([start(out, err)], os.fstat(err).st_ino, os.fstat(out).st_ino)
    assert isinstance(found, Said)
    assert (found.epoch, found.epochs, found.step, found.steps) == (3, 10, 450, 1000)


def test_a_look_has_its_owners_rights_and_no_more(work: Path, start: Start) -> None:
    """A log that its owner may write and not read is not read for him."""
    fd = opened(work / "log")
    os.write(fd, b"Epoch 3/10 loss 0.1\n")
    os.fchown(fd, 0, 0)
    assert looked([start(fd, fd)], os.fstat(fd).st_ino) == "permission denied"


def test_a_text_that_takes_long_is_given_up(work: Path, start: Start) -> None:
    """The child has a second of processor time; a large file costs no more than a small one."""
    fd = opened(work / "log")
    os.truncate(fd, 2**40)
    os.write(fd, b"\n" + b"epoch " * 20000)
    found = looked([start(fd, fd)], os.fstat(fd).st_ino)
    assert isinstance(found, Said) and found.epoch is None


def test_a_look_that_hangs_is_not_waited_for(work: Path, start: Start) -> None:
    fd = opened(work / "log")
    hangs = partial(time.sleep, 60)
    late = read_numbers(hangs, [start(fd, fd)], {os.fstat(fd).st_ino: 0}, 0.2)
    assert late == "no answer in time"
    elsewhere = opened(work / "elsewhere")
    none = looked([start(elsewhere, elsewhere)], os.fstat(fd).st_ino)
    assert none == "none of its processes has its log open"
    assert looked([], 0) == "its log is no regular file"


@pytest.mark.parametrize(
    "answer", [b"[]", b"{}", b"{", json.dumps(Said(epoch=1e99)._asdict()).encode()]
)
def test_what_a_child_says_is_checked(answer: bytes) -> None:
    assert checked(answer) == "no numbers"
