# SPDX-License-Identifier: Apache-2.0
"""The lock of a GPU's MPS folder: root's alone, for whoever can open it can hold it.

A user who holds it keeps every Prolog, Epilog and the agent from MPS on that GPU.
"""

import errno
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

from slurm_coloc.adapters.mps import daemon
from slurm_coloc.core.gpu.sharing import Method

from .tables import ADA, BEN, Table

#: exits with the errno of opening argv[1] to read, 0 where it was opened
OPEN = """
import os, sys
try:
    os.open(sys.argv[1], os.O_RDONLY)
except OSError as err:
    sys.exit(err.errno)
"""


def opened_by(uid: int, path: Path) -> int:
    """The errno that this user gets; reading is all that flock needs."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", OPEN, path],
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
        check=False,
    ).returncode


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_no_user_can_open_the_lock(table: Table) -> None:
    """Neither the one whose daemon it is nor another; the daemon's own folders stay reachable."""
    _, _, pipe = table.join(1)
    lock = table.gpu.folder / "lock"
    assert opened_by(ADA, lock) == errno.EACCES
    assert opened_by(BEN, lock) == errno.EACCES
    assert (lock.stat().st_uid, mode_of(lock)) == (0, 0o600)
    assert pipe is not None
    for folder in (pipe, pipe.parent / "log"):
        assert opened_by(ADA, folder) == 0
    table.leave(1)


def test_a_lock_of_an_older_release_is_mended(table: Table) -> None:
    table.gpu.folder.mkdir(parents=True)
    lock = table.gpu.folder / "lock"
    lock.touch()
    lock.chmod(0o644)
    inode = lock.stat().st_ino
    assert opened_by(BEN, lock) == 0
    assert table.join(1)[0] is Method.MPS
    assert opened_by(BEN, lock) == errno.EACCES
    assert (mode_of(lock), lock.stat().st_ino) == (0o600, inode), "the same file: others hold it"
    table.leave(1)


def test_a_link_at_the_locks_place_is_not_followed(table: Table) -> None:
    table.gpu.folder.mkdir(parents=True)
    other = table.run_dir / "other"
    other.touch()
    other.chmod(0o644)
    (table.gpu.folder / "lock").symlink_to(other)
    method, reason, _ = table.join(1)
    assert method is Method.STREAMS
    assert "cannot be set up" in reason
    assert mode_of(other) == 0o644
    (table.gpu.folder / "lock").unlink()


def test_a_users_file_at_the_locks_place_is_not_used(table: Table) -> None:
    """Its owner could open it again: it is no lock, and its mode stays as it is."""
    table.gpu.folder.mkdir(parents=True)
    lock = table.gpu.folder / "lock"
    lock.touch()
    lock.chmod(0o644)
    os.chown(lock, BEN, BEN)
    method, reason, _ = table.join(1)
    assert method is Method.STREAMS
    assert "not root's" in reason
    assert (lock.stat().st_uid, mode_of(lock)) == (BEN, 0o644)
    lock.unlink()


def test_a_fifo_at_the_locks_place_holds_nobody(table: Table) -> None:
    table.gpu.folder.mkdir(parents=True)
    os.mkfifo(table.gpu.folder / "lock")
    assert table.join(1)[0] is Method.STREAMS
    (table.gpu.folder / "lock").unlink()


def test_a_daemon_whose_queue_is_full_listens(tmp_path: Path) -> None:
    """Many clients that come at once must not have it taken for dead and stopped."""
    (tmp_path / "pipe").mkdir()
    path = str(tmp_path / "pipe/control")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waits:
            waits.connect(path)  # the queue has room for one
            assert daemon.listens(tmp_path / "pipe")
    assert not daemon.listens(tmp_path / "pipe")
