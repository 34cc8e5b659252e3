# SPDX-License-Identifier: Apache-2.0
"""What a user puts into the folders of their MPS daemon costs nobody else anything.

The folders are renamed aside and removed later, with the user's rights and within a time. No hook
and no agent waits for it, walks it, or fails by it.
"""

import contextlib
import fcntl
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps import folder, removal
from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob
from slurm_coloc.adapters.mps.node import leave, reap
from slurm_coloc.core.gpu.sharing import Method

from .tables import ADA, BEN, Table

DEEP = 3000  # Python's own limit is 1,000


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node where a hook may not mount: what a user puts there is not bounded."""
    monkeypatch.setattr(folder, "_mount", lambda where: "not permitted")


def log_of(table: Table) -> Path:
    return table.gpu.folder / str(ADA) / "log"


def old_of(table: Table) -> Path:
    return table.run_dir / "mps" / ".old"


def nest(folder: Path, levels: int = DEEP, mode: int = 0o755) -> None:
    """Folders within folders, of the user's: far longer than a path may be."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        os.chown("d", ADA, ADA, dir_fd=fd)
        deeper = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.fchmod(deeper, mode)
        os.close(fd)
        fd = deeper
    os.close(fd)


def fill(folder: Path, files: int) -> None:
    fd = os.open(folder, os.O_RDONLY)
    for number in range(files):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
    os.close(fd)


def kill(table: Table) -> None:
    """The daemon: the next one has the same folder."""
    pid = table.record().pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def left(table: Table) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(entry.name for entry in old_of(table).iterdir())
    return []


def names_in(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


@contextlib.contextmanager
def nobody_removes(table: Table) -> Iterator[None]:
    """As if another were at it: what was put away stays there."""
    old_of(table).mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(old_of(table), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def reaped(table: Table) -> list[str]:
    """The GPUs whose daemons the agent ended; nothing may have failed."""
    found = reap(table.run_dir, table.gpu.control, table.gpu.environ)
    assert found.faults == []
    return found.ended


def removed(table: Table) -> None:
    """All that was put away goes, as the agent asks for it each minute."""

    def nothing() -> bool:
        reaped(table)
        return left(table) == []

    table.node.until(nothing)


def test_nested_folders_do_not_end_mps_on_a_gpu(table: Table) -> None:
    _, _, pipe = table.join(1)
    nest(log_of(table))
    table.leave(1)
    assert table.join(2) == (Method.MPS, "", pipe)
    nest(log_of(table))
    kill(table)
    assert table.join(3) == (Method.MPS, "", pipe), "not the Epilog, the Prolog meets it"
    table.leave(2)
    table.leave(3)
    assert table.join(4, BEN)[0] is Method.MPS, "another user on this GPU"
    table.leave(4, BEN)
    removed(table)


def test_nested_folders_do_not_end_the_agent(table: Table) -> None:
    table.join(1)
    nest(log_of(table))
    (table.run_dir / "1.json").unlink()
    assert reaped(table) == [table.gpu.uuid]
    assert table.join(2)[0] is Method.MPS
    table.leave(2)
    removed(table)


def test_the_next_job_does_not_wait_for_50000_files(table: Table) -> None:
    table.join(1)
    fill(log_of(table), 50_000)
    kill(table)
    with nobody_removes(table):
        assert table.join(2)[0] is Method.MPS
        (name,) = left(table)
        assert len(names_in(old_of(table) / name / "log")) >= 50_000, "nobody has removed it"
        assert "0" not in names_in(log_of(table)), "and the new one is another"
        table.leave(1)
        table.leave(2)
        assert table.join(3, BEN)[0] is Method.MPS
        table.leave(3, BEN)
        assert len(left(table)) == 3
    removed(table)


def test_no_user_reaches_what_was_put_away(table: Table) -> None:
    table.join(1)
    with nobody_removes(table):
        table.leave(1)
        seen = old_of(table).stat()
        assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (0, 0o700)
    removed(table)


def test_it_is_removed_with_its_users_rights(table: Table) -> None:
    """A file of another's in it stays for ever: root does not walk there; nobody is held up."""
    table.join(1)
    other = log_of(table) / "other"
    other.mkdir()
    (other / "file").touch()
    os.chown(other, BEN, BEN)
    fill(log_of(table), 10)
    table.leave(1)
    for _ in range(3):
        before = left(table)
        table.node.until(lambda before=before: reaped(table) == [] and left(table) != before)
    (name,) = left(table)
    found = [path for path in (old_of(table) / name).rglob("*") if path.is_file()]
    assert [path.name for path in found] == ["file"]
    assert table.join(2)[0] is Method.MPS
    table.leave(2)
    table.node.until(lambda: reaped(table) == [] and len(left(table)) == 1)


@pytest.mark.parametrize("mode", [0o000, 0o444, 0o755])
def test_odd_modes_names_and_kinds(table: Table, mode: int) -> None:
    table.join(1)
    victim = table.run_dir / "victim"
    victim.mkdir()
    (victim / "file").touch()
    log = log_of(table)
    (log / "a" / "b" / "c").mkdir(parents=True)
    for name in ("-rf", "a\nb", "\udcff", "x" * 255, " "):
        (log / "a" / name).touch()
    os.mkfifo(log / "a" / "fifo")
    (log / "link").symlink_to(victim)
    (log / "a" / "b" / "link").symlink_to(victim / "file")
    (log / "dangling").symlink_to("/nowhere")
    for path in ("a/b/c", "a/b", "a", ""):
        os.chown(log / path, ADA, ADA)
        (log / path).chmod(mode)
    log.parent.chmod(mode)
    table.leave(1)
    removed(table)
    assert (victim / "file").exists()


def test_folders_that_were_never_given_to_their_user(table: Table) -> None:
    """A Prolog that was killed while it made them: the inner ones are the user's already."""
    folder = table.gpu.folder / str(ADA)
    (folder / "log").mkdir(parents=True)
    (folder / "pipe").mkdir()
    os.chown(folder / "log", ADA, ADA)
    fill(folder / "log", 10)
    assert table.join(1)[0] is Method.MPS
    table.leave(1)
    removed(table)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_removal_that_lasts_is_ended(
    table: Table, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """A user may stop any process of theirs by SIGSTOP; the one that waits for it is root's."""

    def lasts(fd: int) -> None:
        if stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        signal.pause()

    monkeypatch.setattr(removal, "TREE_S", 2.0)  # its name before is still there to be seen
    with monkeypatch.context() as held:
        held.setattr(removal, "empty", lasts)
        table.join(1)
        table.leave(1)
        before = left(table)
        assert len(before) == 1
        table.node.until(lambda: left(table) != before)
        (name,) = left(table)
        assert (old_of(table) / name / "log").is_dir(), "it waits behind the others"
    removed(table)


def test_a_round_has_a_bound(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that cannot be removed do not keep the others from it."""
    monkeypatch.setattr(removal, "MOST", 2)
    with nobody_removes(table):
        for job in range(1, 6):
            table.join(job)
            if job < 5:
                (log_of(table) / "other").mkdir()
                (log_of(table) / "other" / "file").touch()
            table.leave(job)
    before = left(table)
    last = before[-1]
    reaped(table)
    table.node.until(lambda: len(set(before) - set(left(table))) == 2)
    assert last in left(table)
    table.node.until(lambda: reaped(table) == [] and last not in left(table))
    assert len(left(table)) == 4


@pytest.mark.parametrize("error", [RecursionError("deep"), ValueError("odd"), KeyError("x")])
def test_whatever_goes_wrong_is_a_reason(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    name = type(error).__name__
    table.join(1)
    with monkeypatch.context() as held:
        held.setattr("slurm_coloc.adapters.mps.daemon.stop", fails)
        kill(table)
        method, reason, pipe = table.join(2)
        assert (method, pipe) == (Method.STREAMS, None)
        assert reason.startswith("MPS cannot be set up") and name in reason
        for job in (1, 2):
            (table.run_dir / f"{job}.json").unlink()
        found = reap(table.run_dir, table.gpu.control, table.gpu.environ)
        assert found.ended == []
        assert [fault.partition(":")[0] for fault in found.faults] == [name]
    table.leave(1)
    assert table.join(3)[0] is Method.MPS
    table.leave(3)


def test_an_epilog_hears_what_went_wrong(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> list[int]:
        raise RecursionError("deep")

    table.join(1)
    job = MpsJob(1, 0, ADA, ADA)
    with monkeypatch.context() as held:
        held.setattr(Gpu, "leave", fails)
        faults = leave(table.run_dir, table.gpu.control, table.gpu.environ, job)
        assert faults == ["RecursionError: deep"]
    with monkeypatch.context() as held:
        held.setattr("slurm_coloc.adapters.mps.node._folders", fails)
        faults = leave(table.run_dir, table.gpu.control, table.gpu.environ, job)
        assert faults == ["RecursionError: deep"]
    table.leave(1)
