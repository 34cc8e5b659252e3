# SPDX-License-Identifier: Apache-2.0
"""What runs used, on the node's disk: <run_dir>/use/<job id>.<restart>.json.

The agent writes a record by temporary file and rename, as root; the Epilog reads it. It stays ten
minutes after its job's state is gone, so that an agent that was away a while knows whose the
processes were that the driver still remembers.
"""

import contextlib
import json
import os
import re
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import spool
from slurm_coloc.errors import ColocError

FOLDER = "use"
MOST_BYTES = 65536
KEPT_S = 600.0
SAME_S = 0.01  # a time as JSON and back
_NAME = re.compile(r"([0-9]{1,10})\.([0-9]{1,10})\.json")

Plain = dict[str, Any]


def load(run_dir: Path, job_id: int, restart: int, began_s: float) -> Plain | None:
    """The record of this very run, checked; None without one."""
    with contextlib.suppress(ColocError, OSError, ValueError):
        with spool.open_dir(run_dir / FOLDER, None) as fd:
            found = _read(fd, f"{job_id}.{restart}.json")
        if found is not None and abs(float(found["began_s"]) - began_s) <= SAME_S:
            return found
    return None


def every(run_dir: Path) -> Iterator[Plain]:
    """All records on this node that can be read."""
    with contextlib.suppress(ColocError, OSError), spool.open_dir(run_dir / FOLDER, None) as fd:
        for name in os.listdir(fd):  # noqa: PTH208
            if _NAME.fullmatch(name):
                with contextlib.suppress(ColocError, OSError, ValueError):
                    found = _read(fd, name)
                    if found is not None:
                        yield found


def _read(dir_fd: int, name: str) -> Plain | None:
    raw = spool.read_file(dir_fd, name, {0, os.geteuid()}, MOST_BYTES)
    return None if raw is None else checked(json.loads(raw))


def checked(found: object) -> Plain | None:
    """A record whose fields have the right types; None where they have not."""
    if not isinstance(found, dict) or found.get("v") != 1:
        return None
    numbers = ("job_id", "restart", "began_s", "since_s", "until_s", "samples")
    lists = ("gpus", "pids", "neighbours", "events")
    if not all(isinstance(found.get(name), int | float) for name in numbers):
        return None
    for name in lists:
        each = found.get(name)
        if not isinstance(each, list) or len(each) > 64:
            return None
        if not all(isinstance(one, dict) for one in each):
            return None
    return found


def write(run_dir: Path, record: Plain) -> None:
    """Put a record in its place; raises ColocError or OSError."""
    if not run_dir.is_dir():
        return  # no Prolog has been here: there is nothing to tell of
    data = json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"
    name = f"{record['job_id']}.{record['restart']}.json"
    with spool.open_dir(run_dir / FOLDER, 0o700) as fd:
        if os.fstat(fd).st_mode & 0o077:  # of an earlier release
            os.fchmod(fd, 0o700)
        # Not synced: with the machine its jobs go, too, and each has a record every few seconds.
        spool.write_file(fd, name, data, 0o600, sync=False)


def forget(run_dir: Path, present: Collection[int]) -> None:
    """Remove the records of jobs that have gone KEPT_S ago, and what a killed agent left."""
    with contextlib.suppress(ColocError, OSError), spool.open_dir(run_dir / FOLDER, None) as fd:
        for name in os.listdir(fd):  # noqa: PTH208
            hit = _NAME.fullmatch(name)
            if (hit and int(hit[1]) in present) or not (hit or name.endswith(".tmp")):
                continue
            with contextlib.suppress(OSError):
                if os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime < time.time() - KEPT_S:
                    os.unlink(name, dir_fd=fd)
