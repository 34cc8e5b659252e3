# SPDX-License-Identifier: Apache-2.0
"""Files of the hooks: job state on the node, and reports that colocd has not taken yet.

Folders are opened once, without following a symlink, and checked: owned by root or SlurmUser and
writable by nobody else. All else happens relative to that descriptor. Files are written under a
temporary name with O_EXCL | O_NOFOLLOW and renamed, so a reader never sees half of one and a
planted link is never followed.
"""

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from slurm_coloc.errors import ColocError, ConfigError

MAX_REPORT = 262144  # bytes of one file
_SPOOLED = r"[0-9]{1,10}\.[0-9]{1,10}\.[A-Za-z0-9._-]{1,255}\.json"


def uid_of(user: str) -> int:
    """The uid of SlurmUser; raises ConfigError where the node does not know the name."""
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(f"slurm_user {user} does not exist on this node") from None


@contextlib.contextmanager
def open_dir(path: Path, mode: int | None, owner: int | None = None) -> Iterator[int]:
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
        status = os.fstat(fd)
        if status.st_uid not in {0, os.geteuid(), owner} or status.st_mode & 0o022:
            raise ConfigError(f"{path}: writable by others than root and SlurmUser")
        yield fd
    finally:
        os.close(fd)


def write_file(
    dir_fd: int,
    name: str,
    data: bytes,
    mode: int,
    owner: int | None = None,
    *,
    sync: bool = True,
) -> None:
    """Put ``data`` at ``name`` in the folder by temporary file and rename, synced to disk. Without
    ``sync`` it outlives this process, not the machine."""
    temporary = f".{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=dir_fd)
    try:
        with os.fdopen(fd, "wb") as file:
            if owner is not None and os.geteuid() == 0:
                os.fchown(fd, owner, -1)
            os.fchmod(fd, mode)
            file.write(data)
            file.flush()
            if sync:
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
        status = os.fstat(fd)
        sound = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_size <= limit
        if not sound or status.st_uid not in owners or status.st_mode & 0o022:
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


def spooled(dir_fd: int) -> list[str]:
    """Names of the reports in the spool, in order."""
    with os.scandir(dir_fd) as entries:
        return sorted(entry.name for entry in entries if re.fullmatch(_SPOOLED, entry.name))


def set_aside(dir_fd: int, name: str) -> None:
    """Keep a report that colocd will never take, under a name that is not sent again."""
    with contextlib.suppress(FileNotFoundError):
        os.rename(name, f"{name.removesuffix('.json')}.bad", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)


def forget_aside(dir_fd: int, before_s: float) -> None:
    """Remove what was set aside before ``before_s`` (Unix seconds)."""
    with os.scandir(dir_fd) as entries:
        names = [one.name for one in entries if one.name.endswith(".bad")]
    for name in names:
        with contextlib.suppress(OSError):
            if os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mtime < before_s:
                os.unlink(name, dir_fd=dir_fd)
