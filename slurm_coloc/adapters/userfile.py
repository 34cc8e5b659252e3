# SPDX-License-Identifier: Apache-2.0
"""Read the end of a user's file as root without lending the user root's rights.

A child drops to the user for good (supplementary groups too, so that root_squash and group
permissions work as for the job), finds the file, and sends its tail back through a pipe. The path
is the user's: its last component may not be a symlink, only a regular file is opened (looked at
through O_PATH first, so that a FIFO or a device is never opened), and all is bounded in bytes,
folder entries and time. A child that hangs on a dead file server is killed and left to the
kernel.
"""

import contextlib
import functools
import json
import os
import re
import select
import signal
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from slurm_coloc.core.slurm.log_path import LogPath

MAX_ENTRIES = 20000  # folder entries looked at in a search
CLOCK_SLACK_S = 60.0  # a file server's clock may be off by so much
MARK_BYTES = 64
NOBODY = 65534  # a group without rights
NO_ANSWER = "no answer in time"  # a Tail's reason


class Owner(NamedTuple):
    """Whose rights to use. ``user`` is the name for initgroups, "" for none."""

    uid: int
    gid: int
    user: str


class Mark(NamedTuple):
    """How long a file was before this run, and a digest of the MARK_BYTES before that end."""

    size: int
    digest: str


class Want(NamedTuple):
    """One log: where it may be, from when on it is this run's, and marks of what is older.

    ``start`` is (inode, bytes): how long the file was when this run began to write. It is exact
    and goes before the marks, for the file that it names.
    """

    path: LogPath
    not_before_s: float = 0.0
    marks: Mapping[str, Mark] = MappingProxyType({})
    start: tuple[int, int] | None = None


class Tail(NamedTuple):
    """The end of a file, or ``reason`` why there is none. ``size`` in bytes."""

    path: str | None
    data: bytes
    size: int
    reason: str | None


def read_tails(owner: Owner, wants: Sequence[Want], limit: int, deadline_s: float) -> list[Tail]:
    """The last ``limit`` bytes of each wanted file, at most ``deadline_s`` seconds in all.

    Always as many answers as wants; never raises for what the user's side does.
    """
    end = time.monotonic() + deadline_s
    readable, writable = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _child(writable, owner, wants, limit)
    os.close(writable)
    try:
        raw = _collect(readable, end, len(wants) * (limit + 2 * 8192))
    finally:
        os.close(readable)
        _reap(pid, end)
    return _decode(raw, len(wants), limit)


def become(owner: Owner) -> None:
    """Drop to ``owner`` for good. A root job stays root; another user cannot be dropped to."""
    if os.geteuid() != 0:
        if owner.uid != os.geteuid():
            raise PermissionError("not root: cannot use another user's rights")
        return
    if owner.user and owner.uid != 0:
        os.initgroups(owner.user, owner.gid)
    else:
        os.setgroups([])
    os.setresgid(owner.gid, owner.gid, owner.gid)
    os.setresuid(owner.uid, owner.uid, owner.uid)
    if os.getresuid() != (owner.uid,) * 3 or os.getresgid() != (owner.gid,) * 3:
        raise PermissionError("the user's rights could not be taken")


def becomes(uid: int) -> Callable[[], None]:
    """``become`` for a file that is open already: with a user's id and nobody's group."""
    return functools.partial(become, Owner(uid, NOBODY if uid else 0, ""))


def _child(writable: int, owner: Owner, wants: Sequence[Want], limit: int) -> None:
    """The child's whole life; never returns."""
    try:
        # slurmd waits for whoever holds the hook's output open: keep none of it.
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir("/")
        become(owner)
        for want in wants:
            tail = _read(want, limit)
            head = {"path": tail.path, "size": tail.size, "reason": tail.reason}
            line = json.dumps({**head, "bytes": len(tail.data)}).encode("ascii") + b"\n"
            _write(writable, line + tail.data)
        os._exit(0)
    except BaseException:
        os._exit(1)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read(want: Want, limit: int) -> Tail:
    reason = "no such file"
    for path in want.path.exact:
        tail = _read_one(path, want, limit)
        if tail.reason is None:
            return tail
        if tail.reason != "no such file":
            reason = tail.reason
    if want.path.search is not None and reason == "no such file":
        try:
            paths = _matches(want.path.search.folder, want.path.search.name, want.not_before_s)
        except OSError as err:
            return Tail(None, b"", 0, _why(err))
        if len(paths) == 1:
            return _read_one(paths[0], want, limit)
        if paths:
            reason = "several files fit the pattern"
    return Tail(None, b"", 0, reason)


def _matches(folder: str, name: str, not_before_s: float) -> list[str]:
    """Fresh regular files of ``folder`` whose whole name fits; gives up beyond MAX_ENTRIES."""
    shape: Callable[[str], object] = re.compile(name, re.DOTALL).fullmatch
    found = []
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= MAX_ENTRIES:
                raise OSError("too many files in the folder")
            if shape(entry.name) and entry.is_file(follow_symlinks=False):
                fresh = entry.stat(follow_symlinks=False).st_mtime >= not_before_s - CLOCK_SLACK_S
                if fresh:
                    found.append(entry.path)
    return found


def _read_one(path: str, want: Want, limit: int) -> Tail:
    handle = fd = -1
    try:
        handle = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        status = os.fstat(handle)
        if stat.S_ISLNK(status.st_mode):
            return Tail(path, b"", 0, "a symlink")
        if not stat.S_ISREG(status.st_mode):
            return Tail(path, b"", 0, "not a regular file")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(f"/proc/self/fd/{handle}", flags)
        now = os.fstat(fd)
        if now.st_mtime < want.not_before_s - CLOCK_SLACK_S:
            return Tail(path, b"", now.st_size, "older than the job")
        start = max(_first_byte(fd, path, now, want), now.st_size - limit)
        return Tail(path, _pread(fd, start, min(limit, now.st_size - start)), now.st_size, None)
    except OSError as err:
        return Tail(path, b"", 0, _why(err))
    finally:
        for each in (handle, fd):
            if each >= 0:
                os.close(each)


def _first_byte(fd: int, path: str, now: os.stat_result, want: Want) -> int:
    """Where this run's text begins: after an earlier run's, unless the file was cut meanwhile."""
    if want.start is not None and want.start[0] == now.st_ino:
        return want.start[1] if want.start[1] <= now.st_size else 0
    mark = want.marks.get(path)
    if mark is None or mark.size > now.st_size:
        return 0
    if mark.size == now.st_size and now.st_mtime >= want.not_before_s:
        return 0  # written again to the same length
    before = max(0, mark.size - MARK_BYTES)
    same = digest(_pread(fd, before, mark.size - before)) == mark.digest
    return mark.size if same else 0


def digest(data: bytes) -> str:
    """The digest that a Mark holds: of the last MARK_BYTES of ``data``."""
    import hashlib  # OpenSSL: 3 ms that most hooks do without

    return hashlib.sha256(data[-MARK_BYTES:]).hexdigest()[:32]


def _pread(fd: int, start: int, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = os.pread(fd, count - len(data), start + len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def _why(err: OSError) -> str:
    if isinstance(err, FileNotFoundError):
        return "no such file"
    return (err.strerror or str(err) or "cannot be read")[:80].lower()


def _collect(fd: int, end: float, most: int) -> bytes:
    data = bytearray()
    while len(data) < most:
        ready, _, _ = select.select([fd], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            break
        piece = os.read(fd, 65536)
        if not piece:
            break
        data += piece
    return bytes(data)


def _reap(pid: int, end: float) -> None:
    """End the child. One that the kernel holds (a dead file server) is not waited for."""
    while time.monotonic() < end:
        done, _ = os.waitpid(pid, os.WNOHANG)
        if done:
            return
        time.sleep(0.002)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    for _ in range(50):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.002)


def _decode(raw: bytes, count: int, limit: int) -> list[Tail]:
    tails: list[Tail] = []
    at = 0
    while len(tails) < count:
        cut = raw.find(b"\n", at)
        if cut < 0:
            tails.append(Tail(None, b"", 0, NO_ANSWER))
            continue
        head = json.loads(raw[at:cut])
        size = min(int(head["bytes"]), limit)
        data = raw[cut + 1 : cut + 1 + size]
        at = cut + 1 + size
        tails.append(Tail(head["path"], data, int(head["size"]), head["reason"]))
    return tails
