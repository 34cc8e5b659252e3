# SPDX-License-Identifier: Apache-2.0
"""Files and reports of the hooks: job state on the node, reports to colocd, the spool between.

Folders are opened once, without following a symlink, and checked: owned by root or SlurmUser and
writable by nobody else. All else happens relative to that descriptor. Files are written under a
temporary name with O_EXCL | O_NOFOLLOW and renamed, so a reader never sees half of one and a
planted link is never followed.
"""

import contextlib
import json
import os
import pwd
import re
import secrets
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_coloc.errors import ColocError, ConfigError, DaemonUnreachable

MAX_REPORT = 262144  # bytes of one message to colocd
MAX_ANSWER = 65536
MAX_FLUSH = 32  # older reports sent along with a new one
_SPOOLED = re.compile(r"[0-9]{1,10}\.[0-9]{1,10}\.[A-Za-z0-9._-]{1,255}\.json")


def uid_of(user: str) -> int:
    """The uid of SlurmUser; raises ConfigError where the node does not know the name."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"slurm_user {user} does not exist on this node") from None


@contextlib.contextmanager
def opened_dir(path: Path, mode: int | None, owner: int | None = None) -> Iterator[int]:
    """A descriptor of ``path``, made with ``mode`` where missing, for ``owner`` (uid) or us.

    Nothing is made where ``mode`` is None. Raises ConfigError when it is missing then, a symlink,
    no folder, or not safe to write in.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        try:
            fd = os.open(path, flags)
        except FileNotFoundError:
            if mode is None:
                raise
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=mode)
            fd = os.open(path, flags)
            os.fchmod(fd, mode)
            if owner is not None and os.geteuid() == 0:
                os.fchown(fd, owner, -1)
    except OSError as err:
        raise ConfigError(f"{path}: not a folder that can be used: {err.strerror}") from err
    try:
        seen = os.fstat(fd)
        if seen.st_uid not in {0, os.geteuid(), owner} or seen.st_mode & 0o022:
            raise ConfigError(f"{path}: writable by others than root and SlurmUser")
        yield fd
    finally:
        os.close(fd)


def write_file(dir_fd: int, name: str, data: bytes, mode: int, owner: int | None = None) -> None:
    """Put ``data`` at ``name`` in the folder by temporary file and rename, synced to disk."""
    temporary = f".{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=dir_fd)
    try:
        with os.fdopen(fd, "wb") as file:
            if owner is not None and os.geteuid() == 0:
                os.fchown(fd, owner, -1)
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=dir_fd)
        raise


def read_file(dir_fd: int, name: str, owners: set[int], limit: int = MAX_REPORT) -> bytes | None:
    """The content of a regular file that one of ``owners`` wrote; None where it is missing.

    Raises ColocError for a link, another kind of file, another owner, or one that is too long.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(name, flags, dir_fd=dir_fd)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise ColocError(f"{name}: {err.strerror}", "bad-file") from err
    try:
        seen = os.fstat(fd)
        sound = stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1 and seen.st_size <= limit
        if not sound or seen.st_uid not in owners or seen.st_mode & 0o022:
            raise ColocError(f"{name}: not a file that the hooks wrote", "bad-file")
        return os.read(fd, limit)
    finally:
        os.close(fd)


def remove_file(dir_fd: int, name: str) -> None:
    """Remove ``name`` if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)


def report_name(job_id: int, restart: int, node: str) -> str:
    """The spool's name for a report: one per job, restart and node, so a second one replaces."""
    return f"{job_id}.{restart}.{re.sub(r'[^A-Za-z0-9._-]', '_', node)[:200]}.json"


class Colocd:
    """One connection to colocd with one deadline for everything that is asked on it."""

    def __init__(self, path: Path, trusted: set[int], deadline_s: float) -> None:
        """Connect. ``trusted`` are the uids that colocd may run as. Raises DaemonUnreachable."""
        self._end = time.monotonic() + deadline_s
        self._rest = b""
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self._sock.settimeout(deadline_s)
            self._sock.connect(os.fspath(path))
            peer = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            uid = struct.unpack("3i", peer)[1]
        except OSError as err:  # a full backlog is EAGAIN here: the caller spools
            self._sock.close()
            raise DaemonUnreachable(f"{path}: {err.strerror or err}") from err
        if uid not in trusted:
            self._sock.close()
            raise DaemonUnreachable(f"{path}: served by uid {uid}, not by SlurmUser")

    def __enter__(self) -> "Colocd":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def ask(self, line: bytes) -> dict[str, Any]:
        """Send one request (JSON without newline), return the answer; DaemonUnreachable."""
        try:
            self._limit()
            self._sock.sendall(line + b"\n")
            while b"\n" not in self._rest:
                self._limit()
                piece = self._sock.recv(65536)
                if not piece or len(self._rest) > MAX_ANSWER:
                    raise DaemonUnreachable("colocd closed the connection")
                self._rest += piece
            answer, _, self._rest = self._rest.partition(b"\n")
            parsed = json.loads(answer)
        except (OSError, ValueError) as err:
            raise DaemonUnreachable(f"colocd does not answer: {err}") from err
        if not isinstance(parsed, dict):
            raise DaemonUnreachable("colocd's answer is not an object")
        return parsed

    def _limit(self) -> None:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("deadline passed")
        self._sock.settimeout(left)


def deliver(
    report: dict[str, Any], socket_path: Path, spool_dir: Path, slurm_uid: int, deadline_s: float
) -> str:
    """Hand a report to colocd, else to the spool. Returns "colocd" or "spool: <why>".

    When colocd answers, reports that were spooled earlier go along. Raises ConfigError or OSError
    when the spool cannot be used either.
    """
    line = json.dumps(report, separators=(",", ":")).encode("ascii")
    try:
        with Colocd(socket_path, {0, slurm_uid, os.geteuid()}, deadline_s) as colocd:
            answer = colocd.ask(line)
            if answer.get("ok") is not True:
                raise DaemonUnreachable(f"colocd refused: {str(answer.get('error'))[:200]}")
            with contextlib.suppress(ColocError, OSError):
                _flush(colocd, spool_dir, slurm_uid)
        return "colocd"
    except DaemonUnreachable as err:
        why = err.message
    name = report_name(report["job_id"], report["restart"], report["node"])
    with opened_dir(spool_dir, 0o700, slurm_uid) as fd:
        write_file(fd, name, line + b"\n", 0o600, slurm_uid)
    return f"spool: {why}"


def _flush(colocd: Colocd, spool_dir: Path, slurm_uid: int) -> None:
    """Send up to MAX_FLUSH older reports. One that colocd refuses stays for colocd to judge."""
    with opened_dir(spool_dir, None, slurm_uid) as fd:
        with os.scandir(fd) as entries:
            names = sorted(entry.name for entry in entries if _SPOOLED.fullmatch(entry.name))
        for name in names[:MAX_FLUSH]:
            try:
                data = read_file(fd, name, {0, slurm_uid, os.geteuid()})
            except ColocError:
                continue
            if data is not None and colocd.ask(data.strip()).get("ok") is True:
                remove_file(fd, name)
