# SPDX-License-Identifier: Apache-2.0
"""Which files a job's logs are, and where this run's text begins: what slurmstepd noted of them."""

import os
from pathlib import Path

from slurm_coloc.adapters import spool

LINE = 1024  # bytes

Start = tuple[int, int]  # inode, bytes


def read_starts(line: bytes) -> dict[str, Start]:
    """From "INODE BYTES INODE BYTES", for stdout and stderr; inode 0 (no regular file) is that of
    no log."""
    words = line.split()
    if len(words) != 4 or not all(word.isdigit() and len(word) <= 20 for word in words):
        return {}
    numbers = [int(word) for word in words]
    return {"stdout": (numbers[0], numbers[1]), "stderr": (numbers[2], numbers[3])}


def starts_of(run_dir: Path, job_id: int) -> dict[int, int]:
    """The length of each of a job's logs when its program began, by inode, standard error first; {}
    where they are no files, or it has none. Raises ColocError or OSError."""
    with spool.open_dir(run_dir, None) as fd:
        line = spool.read_file(fd, f"{job_id}.logs", {0, os.geteuid()}, LINE) or b""
    found = read_starts(line)
    both = [found[name] for name in ("stderr", "stdout") if name in found]
    return {inode: size for inode, size in both if inode}
