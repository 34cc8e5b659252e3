# SPDX-License-Identifier: Apache-2.0
"""Logs that the user's rights decide about, and logs that are traps."""

import os
import socket
import time
from pathlib import Path

import pytest

from slurm_coloc.adapters.userfile import Mark, Owner, Tail, Want, digest, read_tails
from slurm_coloc.core.slurm.log_path import LogPath, Search

from .conftest import USER

OWNER = Owner(USER, USER, "")
pytestmark = pytest.mark.usefixtures("as_root")


def read(path: Path | str, limit: int = 4096, **want: object) -> Tail:
    tails = read_tails(OWNER, [Want(LogPath((str(path),)), **want)], limit, 3.0)  # type: ignore[arg-type]
    assert len(tails) == 1
    return tails[0]


def put(path: Path, data: bytes, mode: int = 0o600, uid: int = USER) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    os.chown(path, uid, uid)
    return path


def test_the_end_of_the_users_own_file(work: Path) -> None:
    tail = read(put(work / "log", b"a" * 5000 + b"the end\n"), limit=8)
    assert tail.data == b"the end\n"
    assert tail.size == 5008
    assert tail.reason is None


def test_root_rights_are_not_lent(work: Path, public: Path) -> None:
    assert read(put(public / "secret", b"x", 0o600, 0)).reason == "permission denied"
    assert read("/etc/shadow").reason == "permission denied"
    assert read(put(work / "none", b"x", 0o000)).reason == "permission denied"
    closed = public / "closed"
    closed.mkdir(mode=0o700)
    assert read(put(closed / "log", b"x", 0o666)).reason == "permission denied"


def test_group_of_the_job_counts(public: Path) -> None:
    path = put(public / "group", b"shared", 0o040, 0)
    os.chown(path, 0, USER)
    assert read(path).data == b"shared"
    os.chown(path, 0, 0)
    assert read(path).reason == "permission denied"


def test_a_symlink_is_refused_and_its_target_untouched(work: Path) -> None:
    target = put(work / "real", b"x")
    for name, goal in (("a", "/etc/shadow"), ("b", str(target)), ("c", "/dev/zero"), ("d", "d")):
        (work / name).symlink_to(goal)
        assert read(work / name).reason == "a symlink"


def test_a_linked_folder_is_the_users_business(work: Path) -> None:
    (work / "sub").mkdir()
    put(work / "sub" / "log", b"fine")
    (work / "link").symlink_to("sub")
    assert read(work / "link" / "log").data == b"fine"
    (work / "etc").symlink_to("/etc")
    assert read(work / "etc" / "shadow").reason == "permission denied"


def test_what_is_no_regular_file_is_never_opened(work: Path) -> None:
    os.mkfifo(work / "fifo", 0o666)
    (work / "fifo").chmod(0o666)
    (work / "dir").mkdir(mode=0o777)
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(work / "sock"))
    start = time.monotonic()
    for path in (work / "fifo", work / "dir", work / "sock", "/dev/zero", "/dev/tty", "/dev/null"):
        assert read(path).reason == "not a regular file", path
    assert time.monotonic() - start < 2
    server.close()


def test_a_huge_sparse_file(work: Path) -> None:
    path = put(work / "huge", b"")
    with path.open("r+b") as file:
        file.truncate(1 << 40)
        file.seek(0, os.SEEK_END)
        file.write(b"end")
    assert read(path, limit=3).data == b"end"


@pytest.mark.parametrize(
    "name",
    ["a\nb", "q\"uo'te", "per%cent", "$(id)", "-rf", "bl ank", "\udcff\udcfe", "é", "\x1b[m"],
)
def test_odd_names(work: Path, name: str) -> None:
    put(work / name, b"fine")
    tail = read(str(work) + "/" + name)
    assert tail.data == b"fine"
    assert tail.path == str(work) + "/" + name


def test_missing_and_too_long(work: Path) -> None:
    assert read(work / "none").reason == "no such file"
    assert read(str(work) + "/" + "x" * 300).reason == "file name too long"
    assert read("/proc/self/environ").reason in ("permission denied", None)
    assert read("/proc/self/environ").data == b""


def test_a_file_older_than_the_run(work: Path) -> None:
    path = put(work / "old", b"CUDA out of memory")
    os.utime(path, (1e9, 1e9))
    assert read(path, not_before_s=time.time()).reason == "older than the job"


def test_marks_of_an_earlier_run(work: Path) -> None:
    path = put(work / "log", b"first run\n")
    marks = {str(path): Mark(10, digest(b"first run\n"))}
    with path.open("ab") as file:
        file.write(b"second\n")
    assert read(path, marks=marks).data == b"second\n"
    put(path, b"a new file, longer\n")
    assert read(path, marks=marks).data == b"a new file, longer\n"
    put(path, b"short")
    assert read(path, marks=marks).data == b"short"


def test_the_start_of_the_run_is_exact(work: Path) -> None:
    path = put(work / "log", b"first run\nsecond\n")
    inode = path.stat().st_ino
    marks = {str(path): Mark(10, digest(b"first run\n"))}
    assert read(path, marks=marks, start=(inode, 0)).data == b"first run\nsecond\n"
    assert read(path, marks=marks, start=(inode, 16)).data == b"\n"
    assert read(path, marks=marks, start=(inode, 17)).data == b""
    assert read(path, marks=marks, start=(inode, 18)).data == b"first run\nsecond\n"  # cut since
    assert read(path, marks=marks, start=(inode + 1, 0)).data == b"second\n"


def test_first_of_several_places(work: Path) -> None:
    put(work / "b", b"b")
    want = Want(LogPath((str(work / "a"), str(work / "b"))))
    assert read_tails(OWNER, [want], 10, 3.0)[0].data == b"b"


def test_a_search_wants_exactly_one_fresh_file(work: Path) -> None:
    now = time.time()
    want = Want(LogPath((), Search(str(work), r"slurm-[0-9]+_[0-9]+\.out")), now)
    assert read_tails(OWNER, [want], 10, 3.0)[0].reason == "no such file"
    os.utime(put(work / "slurm-5_1.out", b"old"), (1e9, 1e9))
    (work / "slurm-5_2.out").symlink_to("/etc/shadow")
    put(work / "slurm-5_3.out", b"mine")
    put(work / "slurm-5_3.out.bak", b"no")
    assert read_tails(OWNER, [want], 10, 3.0)[0].data == b"mine"
    put(work / "slurm-5_4.out", b"other")
    tail = read_tails(OWNER, [want], 10, 3.0)[0]
    assert tail.reason == "several files fit the pattern"
    assert tail.data == b""


def test_a_search_that_never_ends_is_cut_off(work: Path) -> None:
    put(work / ("a" * 200), b"x")
    want = Want(LogPath((), Search(str(work), "(a*)*(a*)*(a*)*b")))
    start = time.monotonic()
    tails = read_tails(OWNER, [want, want], 10, 0.5)
    assert [tail.reason for tail in tails] == ["no answer in time"] * 2
    assert time.monotonic() - start < 2


def test_no_child_is_left(work: Path) -> None:
    def children() -> set[str]:
        tasks = Path("/proc/self/task").glob("*/children")
        return {pid for task in tasks for pid in task.read_text().split()}

    before = children()  # other tests of this process may have some
    for _ in range(5):
        read(work / "none")
    assert children() <= before
