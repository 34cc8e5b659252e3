# SPDX-License-Identifier: Apache-2.0
"""The folders of MPS daemons, which users can fill, are removed later, with the users' rights.

The folder of an MPS daemon is its user's, who may nest and fill it without an end. So no hook and
no agent walks it. It is renamed into ``<run_dir>/mps/.old``, which is root's and 0700. Then a
process of root's, in a session of its own, has a child that is the user empty one folder after the
other, each within TREE_S, and removes only the empty folder that is left. What cannot be emptied is
put behind the others and tried again when the agent asks next, a few in each round.

How long it takes does not matter: the folder's place is free at once.
"""

import contextlib
import errno
import fcntl
import os
import re
import resource
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from slurm_coloc.adapters.mps import processes

OLD = ".old"
#: for one folder in one round: by the clock, for the machine may be busy, and of processor time.
#: 50,000 files take 0.25 s of it, 3,000 nested folders 0.06 s (tmpfs; on ext4 0.5 and 0.3 s).
TREE_S = 10.0
CPU_S = 5
#: folders in a round; the agent asks for one each minute
MOST = 8
#: when it was put there, in ns, so that who waits longest comes first; whose it is; by chance
_NAME = r"[0-9]{20}\.([0-9]{1,10})\.[0-9a-f]{8}"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: Path) -> None:
    """Take the folder of a daemon, ``<run_dir>/mps/<gpu>/<uid or all>``, out of its place; what is
    in it goes behind the caller. Raises OSError where it stays."""
    mps = folder.parents[1]
    with open_old(mps) as old:
        try:
            os.rename(folder, _fresh(_owner(folder)), dst_dir_fd=old)
        except FileNotFoundError:
            return
    sweep(mps)


def sweep(mps: Path) -> None:
    """Start to remove the folders that were put away, in a process that nobody waits for. Never
    raises: the next call tries again."""
    try:
        if not any(re.fullmatch(_NAME, entry.name) for entry in (mps / OLD).iterdir()):
            return
        pid = os.fork()
    except OSError:
        return
    if pid == 0:
        _ending(lambda: _go_on_behind(mps))
    with contextlib.suppress(OSError):
        os.waitpid(pid, 0)  # it ends once the other is on its own


@contextlib.contextmanager
def open_old(mps: Path) -> Iterator[int]:
    """A descriptor of ``.old``, made where it is missing. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        (mps / OLD).mkdir(0o700)
    fd = os.open(mps / OLD, _FOLDER)
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"{mps / OLD} is another user's")
        if stat.S_IMODE(status.st_mode) != 0o700:
            os.fchmod(fd, 0o700)
        yield fd
    finally:
        os.close(fd)


def _owner(folder: Path) -> int:
    """By its name, which is root's to give: a Prolog that was killed may have made the folder and
    not yet given it to its user, whose folders are in it."""
    name = folder.name
    if name.isascii() and name.isdigit():
        return int(name)
    return 0 if name == "all" else folder.lstat().st_uid


def _fresh(uid: int) -> str:
    return f"{time.time_ns():020d}.{uid}.{os.urandom(4).hex()}"


def _ending(work: Callable[[], object]) -> NoReturn:
    """A child's whole life: nothing of the caller's runs in it."""
    try:
        work()
    finally:
        os._exit(0)


def _go_on_behind(mps: Path) -> None:
    """In a session of its own, without anything of the caller's: neither its locks nor its
    output."""
    _close_all_but()
    processes.leave_caller()
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(19)
    if os.fork() == 0:
        _ending(lambda: _round(mps))


def _close_all_but(*needed: int) -> None:
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd not in needed:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)


def _round(mps: Path) -> None:
    """Remove folders, one process at a time on a node. A process that finds the lock taken ends:
    its holder checks for new folders after it has released the lock."""
    tried: set[str] = set()
    with open_old(mps) as old:
        while _next(old, tried):
            try:
                fcntl.flock(old, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            while name := _next(old, tried):
                tried.add(_try(old, name))
            fcntl.flock(old, fcntl.LOCK_UN)


def _next(old: int, tried: set[str]) -> str | None:
    if len(tried) >= MOST:
        return None
    names = [name for name in os.listdir(old) if re.fullmatch(_NAME, name) and name not in tried]
    return min(names, default=None)


def _try(old: int, name: str) -> str:
    """Have a folder emptied and remove it; its name, a new one where it could not be removed."""
    match = re.fullmatch(_NAME, name)
    uid = int(match[1]) if match else 0
    with contextlib.suppress(OSError):
        top = os.open(name, _FOLDER, dir_fd=old)
        try:
            _have_emptied(top, uid)
        finally:
            os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=old)
        return name
    with contextlib.suppress(OSError):
        later = _fresh(uid)
        os.rename(name, later, src_dir_fd=old, dst_dir_fd=old)
        return later
    return name


def _have_emptied(top: int, uid: int) -> None:
    """Have a child with the user's rights empty the folder. The user may stop that child by a
    signal: this process, root's, kills it after TREE_S. Raises OSError."""
    status = os.fstat(top)
    if status.st_uid != uid:
        os.fchown(top, uid, -1)
    gid = status.st_gid if uid == 0 or status.st_gid else 65534  # never root's group for a user
    pid = os.fork()
    if pid == 0:
        _ending(lambda: _empty_as(top, uid, gid))
    fd = os.pidfd_open(pid)
    try:
        if not processes.gone(fd, TREE_S):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    finally:
        os.close(fd)
    os.waitpid(pid, 0)


def _empty_as(top: int, uid: int, gid: int) -> None:
    _close_all_but(top)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    if os.geteuid() == 0:
        os.setgroups(())
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    empty(top)


def empty(top: int) -> None:
    """Remove what is in the folder, as far as this process may. Folders are never entered below
    the first level: those in them are moved up first, so that depth costs nothing and no way has
    to be found back. Raises OSError where ``top`` cannot be read."""
    with contextlib.suppress(OSError):
        os.fchmod(top, 0o700)
    goes_on = True
    while goes_on:
        goes_on = False
        with os.scandir(top) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    goes_on |= _flatten(top, entry.name)
                else:
                    goes_on |= _did(lambda name: os.unlink(name, dir_fd=top), entry.name)


def _flatten(top: int, name: str) -> bool:
    """Remove the files of a folder, move its folders up, and remove it; whether anything of it was
    done."""
    done = False
    with contextlib.suppress(OSError):
        fd = _open(top, name)
        try:
            with contextlib.suppress(OSError):
                os.fchmod(fd, 0o700)
            with os.scandir(fd) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        done |= _did(lambda inner: _move_up(fd, inner, top), entry.name)
                    else:
                        done |= _did(lambda inner: os.unlink(inner, dir_fd=fd), entry.name)
        finally:
            os.close(fd)
    return _did(lambda inner: os.rmdir(inner, dir_fd=top), name) or done


def _open(top: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=top)
    except PermissionError:
        _grant(top, name)
        return os.open(name, _FOLDER, dir_fd=top)


def _move_up(fd: int, name: str, top: int) -> None:
    goal = os.urandom(8).hex()
    try:
        os.rename(name, goal, src_dir_fd=fd, dst_dir_fd=top)
    except PermissionError:  # its ".." is to change, which needs the right to write in it
        _grant(fd, name)
        os.rename(name, goal, src_dir_fd=fd, dst_dir_fd=top)


def _did(work: Callable[[str], None], name: str) -> bool:
    try:
        work(name)
    except OSError:
        return False
    return True


def _grant(at: int, name: str) -> None:
    """Give the owner all rights to a folder that may not be opened as it is."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        Path(f"/proc/self/fd/{fd}").chmod(0o700)
    finally:
        os.close(fd)
