# SPDX-License-Identifier: Apache-2.0
"""Which jobs are on this node: the states that the Prolog wrote and the Epilog removes; and where
their logs begin, which slurmstepd noted beside them."""

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from slurm_coloc.adapters import spool
from slurm_coloc.errors import ColocError

#: suffixes of the fence's record, which `coloc fence` writes, of what slurmstepd reads, and of what
#: it writes where a task could not use MPS
FENCE, SHARE, NO_MPS = "fence", "share", "nomps"
#: all of a job's files in run_dir; step and logs are written by slurmstepd too
SUFFIXES = ("json", "step", "logs", FENCE, SHARE, NO_MPS)
#: of run_dir: others pass through to their MPS pipe; and of what is in it, of whoever's job
FOLDER_MODE, FILE_MODE = 0o711, 0o600
LINE = 1024  # bytes of what slurmstepd noted
_STATE = re.compile(r"([0-9]{1,10})\.json")


class Job(NamedTuple):
    """One run on this node. ``began_s``: when its Prolog began; ``uuids``: its GPUs, () where the
    Prolog could not tell; ``method``: how it shares them (core/gpu/sharing), "" where not known.
    ``promised_mib``: of each of them, 0 for whole GPUs, None where colocd could not be asked;
    ``context_mib``: of a process beyond that, None where colocd did not tell. ``prolog_s``: what
    the Prolog took, None while it runs."""

    job_id: int
    restart: int
    uid: int
    began_s: float
    uuids: tuple[str, ...]
    method: str = ""
    promised_mib: int | None = None
    context_mib: int | None = None
    account: str = ""
    prolog_s: float | None = None

    def promised_on(self, uuid: str) -> int | None:
        """MiB of this GPU (or MIG device) that the run was promised: 0 of one that it does not
        have; None where it has the whole of it, or that is not known."""
        if self.promised_mib is None or not self.uuids:
            return None
        return (self.promised_mib or None) if uuid in self.uuids else 0


class Present:
    """The jobs of this node, by the folder's time: one system call where nothing changed."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._mtime_ns = -1
        self._files: dict[str, tuple[int, int]] = {}
        self.jobs: dict[int, Job] = {}
        self.uids: dict[int, int] = {}

    def refresh(self) -> bool:
        """Read what is new; whether something changed."""
        try:
            mtime_ns = os.stat(self._run_dir).st_mtime_ns  # noqa: PTH116
        except OSError:
            changed = bool(self.jobs)
            self._mtime_ns, self._files, self.jobs, self.uids = -1, {}, {}, {}
            return changed
        if mtime_ns == self._mtime_ns:
            return False
        try:
            with spool.open_dir(self._run_dir, None) as fd:
                changed = self._read_all(fd)
        except (ColocError, OSError):
            return False
        # Not remembered while the folder is younger than the clock's tick: a file that comes within
        # the same tick would be missed.
        self._mtime_ns = mtime_ns if _settled(mtime_ns) else -1
        return changed

    def _read_all(self, fd: int) -> bool:
        files: dict[str, tuple[int, int]] = {}
        jobs: dict[int, Job] = {}
        with os.scandir(fd) as entries:
            names = [entry.name for entry in entries if _STATE.fullmatch(entry.name)]
        for name in names:
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                files[name] = (status.st_mtime_ns, status.st_ino)
                job_id = int(name.removesuffix(".json"))
                if files[name] == self._files.get(name):
                    job = self.jobs.get(job_id)
                else:
                    job = read_state(spool.read_file(fd, name, {0, os.geteuid()}) or b"")
            except (ColocError, OSError):
                continue
            if job is not None and job.job_id == job_id:
                jobs[job_id] = job
        changed = jobs != self.jobs
        self._files, self.jobs = files, jobs
        self.uids = {job.job_id: job.uid for job in jobs.values()}
        return changed


def read_state(raw: bytes) -> Job | None:
    """The run of a state; None where it is none."""
    try:
        state = json.loads(raw)
        devices = state["gpu"].get("devices", [])
        held = state.get("reservation", {})
        return Job(
            job_id=int(state["job_id"]),
            restart=int(state["restart"]),
            uid=int(state["uid"]),
            began_s=float(state["started_s"]),
            uuids=tuple(str(one["uuid"]) for one in devices),
            method=str(state.get("sharing", {}).get("method", "")),
            promised_mib=int(held["shards"]) * int(held["shard_mib"])
            if held.get("available")
            else None,
            context_mib=int(held["context_mib"]) if held.get("context_mib") else None,
            account=str(held.get("account") or ""),
            prolog_s=float(state["took_s"]) if "took_s" in state else None,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def close_to_others(run_dir: Path) -> None:
    """Give run_dir and root's files in it the modes of today: earlier releases let everybody read
    whose job is there, its name and the path of its log. Raises ColocError or OSError."""
    with spool.open_dir(run_dir, None) as fd:
        if os.geteuid() != os.fstat(fd).st_uid:
            return
        _set(fd, FOLDER_MODE)
        with os.scandir(fd) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    _close(fd, entry.name)


def _close(dir_fd: int, name: str) -> None:
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=dir_fd)
        try:
            _set(file, FILE_MODE)
        finally:
            os.close(file)


def _set(fd: int, mode: int) -> None:
    if os.fstat(fd).st_mode & 0o777 != mode:
        os.fchmod(fd, mode)


def add_promise(run_dir: Path, promise: Mapping[str, Any]) -> Job | None:
    """Add to a run's state what its Prolog could not learn of colocd; the run, None where nothing
    was missing. Raises ColocError or OSError."""
    job_id, name = promise.get("job_id"), f"{promise.get('job_id')}.json"
    if not isinstance(job_id, int) or not _STATE.fullmatch(name):
        return None
    with spool.open_dir(run_dir, None) as fd:
        raw = spool.read_file(fd, name, {0, os.geteuid()}) or b""
        job = read_state(raw)
        if job is None or job.promised_mib is not None or job.prolog_s is None:
            return None
        if (job.job_id, job.restart) != (job_id, promise.get("restart")):
            return None
        held = {key: value for key, value in promise.items() if key not in ("job_id", "restart")}
        state = json.loads(raw) | {"reservation": {"available": True, **held, "from": "heartbeat"}}
        data = json.dumps(state, indent=1).encode("ascii") + b"\n"
        told = read_state(data)
        if told is None or told.promised_mib is None:
            return None
        spool.write_file(fd, name, data, FILE_MODE)
    return told


def remove_state(run_dir: Path, job_id: int) -> None:
    """Remove all files of a job that has ended; raises ColocError or OSError."""
    with spool.open_dir(run_dir, None) as fd:
        for suffix in SUFFIXES:
            spool.remove_file(fd, f"{job_id}.{suffix}")


def read_starts(line: bytes) -> dict[str, tuple[int, int]]:
    """(inode, bytes) from "INODE BYTES INODE BYTES", for stdout and stderr; inode 0 (no
    regular file) is that of no log."""
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


def _settled(mtime_ns: int) -> bool:
    """Whether a later change would show: file systems count in ticks of up to 10 ms."""
    return time.time_ns() - mtime_ns > 50_000_000
