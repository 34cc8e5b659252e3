# SPDX-License-Identifier: Apache-2.0
"""SQLite's WAL needs a local disk: find the file system of a folder and refuse network ones."""

from pathlib import Path

from slurm_coloc.errors import ConfigError

NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "beegfs", "gpfs", "ceph", "glusterfs",
        "fuse.glusterfs", "fuse.sshfs", "9p", "afs", "panfs", "orangefs", "pvfs2", "wekafs",
    }
)  # fmt: skip


def file_system(folder: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Type of the file system that holds ``folder`` (``ext4``, ``nfs4``); "" if unknown."""
    target = str(folder.resolve())
    best, kind = "", ""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        parts = line.split()
        if len(parts) < 3:
            continue
        point = parts[1].replace("\\040", " ")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, parts[2]
    return kind


def require_local(folder: Path) -> None:
    """Raise ConfigError when ``folder`` lies on a network file system."""
    kind = file_system(folder)
    if kind in NETWORK:
        raise ConfigError(
            f"{folder} is on {kind}: the database needs a local disk; set daemon.state_dir"
        )
