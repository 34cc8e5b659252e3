# SPDX-License-Identifier: Apache-2.0
"""Who holds memory of a GPU, for the Prolog: processes with their jobs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import procs

MOST = 64  # processes of one GPU that are told; MPS takes 48 clients
MAX_STATE = 65536  # bytes of a job's state


def gpu_processes(processes: Sequence[Mapping[str, Any]], run_dir: Path) -> list[dict[str, Any]]:
    """NVML's ``processes`` of a GPU (pid, used_mib) with job, user and name
    (core/recover/fitness.GpuProcess). Left out: processes that have ended, and
    programs of MPS, whose memory is their clients'."""
    found = []
    for each in processes[:MOST]:
        one = procs.find(int(each["pid"]), lambda job_id: owner(run_dir, job_id))
        if one is None or procs.is_helper(one):
            continue
        told = {"pid": one.pid, "uid": one.uid, "name": one.name[:32]}
        if one.job_id is not None:
            told["job_id"] = one.job_id
        if isinstance(each["used_mib"], int):
            told["used_mib"] = each["used_mib"]
        found.append(told)
    return found


def owner(run_dir: Path, job_id: int) -> int | None:
    """Whose a job is that runs here, by the state that its Prolog wrote as root; None where there
    is none. The folder is root's: nobody else can plant a file there."""
    try:
        with (run_dir / f"{job_id}.json").open("rb") as file:
            state = json.loads(file.read(MAX_STATE))
        return int(state["uid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
