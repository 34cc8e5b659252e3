# SPDX-License-Identifier: Apache-2.0
"""The folder of an MPS daemon: pipe/ and log/ are its user's, in a small file system of their own.

Below /run a user could fill what slurmd needs, too. So root mounts a tmpfs of SIZE and INODES there
(Prolog and Epilog run with slurmd's rights) and takes it away with all that is in it, also while a
process of the user's stands in it. Where that is not permitted (a container), the folder is one of
/run's and only what removes it is bounded (``removal``). The agent may not unmount: what it leaves
stays empty of processes, bounded, and in its place until the next hook of that GPU.
"""

import ctypes
import os
from pathlib import Path

from slurm_coloc.adapters.mps import removal

SIZE, INODES = "32m", 1024
NOSUID, NODEV, NOEXEC = 2, 4, 8  # mount(2)
DETACH, NOFOLLOW = 2, 8  # umount2(2)
MOST_MOUNTS = 8  # one above the other


def make(folder: Path, uid: int, gid: int) -> str:
    """A folder with pipe/ and log/ of this user; "" or why it is not in a file system of its own.
    Raises OSError."""
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    why = _mount(folder)
    for each in (folder / "pipe", folder / "log"):
        each.mkdir(mode=0o755)
        os.chown(each, uid, gid, follow_symlinks=False)
    return why


def take_away(folder: Path) -> None:
    """Free the folder's place as far as this process may; nothing of it is walked. Raises
    OSError where it stays, but not for a mount that this process may not undo."""
    for _ in range(MOST_MOUNTS):
        if not folder.is_mount():
            break
        if not _unmount(folder):
            return
    removal.remove(folder)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _mount(folder: Path) -> str:
    options = f"size={SIZE},nr_inodes={INODES},mode=0755".encode()
    flags = NOSUID | NODEV | NOEXEC
    if _libc().mount(b"coloc-mps", os.fsencode(folder), b"tmpfs", flags, options) == 0:
        return ""
    return f"its folder has no size limit: {os.strerror(ctypes.get_errno())}"


def _unmount(folder: Path) -> bool:
    done: int = _libc().umount2(os.fsencode(folder), DETACH | NOFOLLOW)
    return done == 0
