# SPDX-License-Identifier: Apache-2.0
"""The MPS daemons of all GPUs of this node: when a job ends, and when no Epilog came."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from slurm_coloc.adapters.mps import removal
from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob
from slurm_coloc.errors import GpuError


def leave(
    run_dir: Path,
    control: Path,
    environ: Mapping[str, str],
    job: MpsJob,
    whose: Callable[[int], bool] | None = None,
) -> list[str]:
    """End this run's and its job's earlier runs' use of any daemon of this node: an earlier run
    may have lost its Epilog, and a GPU that hangs is not in the state of a run. ``whose``: see
    Gpu.leave. Returns what failed, and which clients had to be ended, in words."""
    faults: list[str] = []
    with _noted(faults):  # the Epilog has more to do
        for folder in _folders(run_dir):
            for found in _of_job(folder / "jobs", job):
                with _noted(faults):  # there are other GPUs
                    gpu = _gpu(run_dir, control, environ, folder)
                    if gpu is None:  # no daemon
                        (folder / "jobs" / found.name).unlink(missing_ok=True)
                    elif gpu.folder == folder and (ended := gpu.leave(found, whose)):
                        faults.append(f"clients of the job outlived it and were ended: {ended[:8]}")
    return faults


def promised(
    run_dir: Path, control: Path, environ: Mapping[str, str], job: MpsJob, share_mib: int
) -> list[str]:
    """What this run was promised of each of its GPUs is known only now; returns what failed, in
    words. Never raises."""
    faults: list[str] = []
    with _noted(faults):
        for folder in _folders(run_dir):
            with _noted(faults):  # there are other GPUs
                gpu = _gpu(run_dir, control, environ, folder)
                if gpu is not None and gpu.folder == folder:
                    gpu.promised(job, share_mib)
    return faults


class Reaped(NamedTuple):
    """``ended``: the UUIDs of the GPUs whose daemon was stopped; ``faults``: what failed."""

    ended: list[str]
    faults: list[str]


def reap(run_dir: Path, control: Path, environ: Mapping[str, str]) -> Reaped:
    """Stop the daemons of this node whose jobs' Epilogs never came, and go on with the removal of
    what users left in their folders. Never raises."""
    done = Reaped([], [])
    with _noted(done.faults):
        for folder in _folders(run_dir):
            with _noted(done.faults):  # there are other GPUs, and the agent goes on
                gpu = _gpu(run_dir, control, environ, folder)
                if gpu is not None and gpu.folder == folder and gpu.reap():
                    done.ended.append(gpu.uuid)
        removal.sweep(run_dir / "mps")
    return done


def _of_job(folder: Path, job: MpsJob) -> list[MpsJob]:
    """The runs of a job that have a file, up to this run."""
    found = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in folder.iterdir():
            one = MpsJob.of(entry.name, job.gid)
            if one and one.job_id == job.job_id and one.restart <= job.restart:
                found.append(one)
    return found


def _folders(run_dir: Path) -> list[Path]:
    """Of the GPUs."""
    try:
        found = sorted((run_dir / "mps").iterdir())
    except FileNotFoundError:
        return []
    return [entry for entry in found if entry.name != removal.OLD]


def _gpu(run_dir: Path, control: Path, environ: Mapping[str, str], folder: Path) -> Gpu | None:
    """The GPU whose daemon's record is in this folder; None without a record. Raises OSError,
    ValueError, KeyError or TypeError."""
    try:
        text = (folder / "daemon.json").read_text("ascii")
    except FileNotFoundError:
        return None
    return Gpu(run_dir, str(json.loads(text)["uuid"]), control, environ)


@contextlib.contextmanager
def _noted(faults: list[str]) -> Iterator[None]:
    """An error of whatever kind becomes a fault."""
    try:
        yield
    except Exception as err:
        kind = "" if isinstance(err, GpuError) else f"{type(err).__name__}: "
        faults.append(f"{kind}{getattr(err, 'message', '') or err}"[:200])
