# SPDX-License-Identifier: Apache-2.0
"""`coloc mig`: the recorded runs as the plan wants them, and gres.conf of this node's devices."""

from collections.abc import Iterable, Sequence
from typing import Any

from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.adapters.nvml.mig import Mig as MigDevices
from slurm_coloc.adapters.nvml.mig import MigDevice, MigGpu
from slurm_coloc.admin.rules.mig_plan import PastRun
from slurm_coloc.config import Config
from slurm_coloc.core.gpu.usage import alone_smact
from slurm_coloc.flow.client.request import call

MOST_RUNS = 1000  # as many as colocd tells at once


def past_runs(config: Config, limit: int = MOST_RUNS) -> tuple[list[PastRun], int]:
    """The completed runs whose peak was measured, and how many others were recorded. Raises
    ColocError where colocd does not answer."""
    rows = call(config, "history", {"limit": limit})["runs"]
    runs = [run for row in rows if (run := past_run(row))]
    return runs, len(rows) - len(runs)


def past_run(row: dict[str, Any]) -> PastRun | None:
    """A run of the history; None for one that says nothing (not ended well, or not measured)."""
    start, end = row.get("start_s"), row.get("end_s")
    if row.get("outcome") != "completed" or not row.get("peak_mib") or not start or not end:
        return None
    return PastRun(
        submit_s=float(row.get("submit_s") or start),
        run_s=max(1.0, float(end) - float(start)),
        peak_mib=int(row["peak_mib"]),
        smact=_smact(row),
    )


def _smact(row: dict[str, Any]) -> float | None:
    """SM activity of a run that was alone on its GPUs, as the agents measured it; else what was
    predicted; None where neither is known."""
    alone = alone_smact(row.get("used") or [])
    known = alone if alone is not None else row.get("smact")
    return None if known is None else min(1.0, max(0.0, float(known)))


def cut_here() -> list[MigGpu]:
    """The GPUs of this node that are in MIG mode, and their devices. Raises GpuError."""
    with Nvml() as lib:
        return MigDevices(lib).gpus()


def gres_lines(gpus: Iterable[MigGpu], node: str, *, multiple: bool = False) -> list[str]:
    """gres.conf lines of the MIG devices of a node, without AutoDetect.

    Each by the device file of its compute instance, which no other job may then open
    (ConstrainDevices=yes): that works on every release. ``multiple``: with the files of its GPU
    and GPU instance too (MultipleFiles, 23.11.5 and later; 22.05 starts such jobs without a GPU).
    """
    devices: Sequence[MigDevice] = [device for gpu in gpus for device in gpu.devices]
    lines = []
    for one in devices:
        files = f"MultipleFiles={','.join(one.files)}" if multiple else f"File={one.files[2]}"
        lines.append(f"NodeName={node} Name=gpu Type={one.profile} {files}")
    return lines
