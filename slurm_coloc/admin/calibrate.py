# SPDX-License-Identifier: Apache-2.0
"""Measures what a process takes beside its tensors on one GPU of this node: `coloc calibrate`.

context = what NVML shows of the job less what PyTorch's allocator has taken, at its highest while
cuBLAS and cuDNN are loaded and convolutions run. Without torch only CUDA's bare context can be
measured: the context of the configuration stays then, or the bare one where that is larger.
"""

import json
import re
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.cuda import Job
from slurm_coloc.adapters.nvml import Gpu, Missing, Nvml
from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.errors import GpuError, UsageFault
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.flow.estimators.calibrations import SUFFIX, TYPE, Calibration, Workspace

MIG = "MIG-"
#: A card's total as NVML shows it differs by driver and ECC by some 100 MiB.
SAME_MIB = 1024


@dataclass(frozen=True, slots=True)
class Plan:
    """What is going to be done."""

    gpu: Gpu
    gpu_type: str
    python: str
    path: Path


def plan(
    nvml: Nvml, folder: Path, device: str | None, gpu_type: str | None, python: str | None
) -> Plan:
    """Chooses the GPU: ``device`` by UUID or NVML's index, else the one with the fewest processes,
    of those the one with the most free memory. Raises GpuError and UsageFault."""
    gpu = _chosen(nvml, device)
    name = gpu_type or type_of(gpu.name, gpu.total_mib)
    if not TYPE.fullmatch(name):
        raise UsageFault(f"--gpu {name!r}: letters, digits, dots, dashes and underscores only")
    return Plan(gpu, name, python or sys.executable, folder / f"{name}{SUFFIX}")


def _chosen(nvml: Nvml, device: str | None) -> Gpu:
    if device is not None and device.startswith(("GPU-", MIG)):
        return nvml.by_uuid([device])[0]
    gpus = nvml.all()
    if device is not None:
        if not (device.isascii() and device.isdigit() and int(device) < len(gpus)):
            raise UsageFault(f"--device {device!r}: a UUID, or an index below {len(gpus)}")
        return gpus[int(device)]
    if not gpus:
        raise GpuError("NVML shows no GPU", "no-gpu")

    def busy(gpu: Gpu) -> tuple[int, int]:
        processes = 0 if isinstance(gpu.processes, Missing) else len(gpu.processes)
        return processes, -gpu.free_mib

    return min(gpus, key=busy)


def type_of(card: str, total_mib: int) -> str:
    """The type of core/gpu/cards.py that a card is, by name and size; else its name in gres.conf's
    letters."""
    words = re.findall(r"[a-z0-9.]+", card.lower())
    for name, kind in GPU_TYPES.items():
        model = name.partition("-")[0]
        joined = "".join(words)
        same = abs(kind.total_mib - total_mib) < SAME_MIB and "mig" not in words
        if same and (model in words or model in joined):
            return name
    return "-".join(words)[:64] or "gpu"


def measure(nvml: Nvml, todo: Plan, default_mib: int) -> Calibration:
    """Runs the job and reads NVML after each stage. ``default_mib``: the configuration's
    context. Raises GpuError."""
    seen: dict[str, dict[str, Any]] = {}
    contexts: dict[str, int] = {}
    with Job(todo.gpu.uuid, todo.python) as job:
        for stage in job.stages():
            name = str(stage["stage"])
            seen[name] = stage
            taken = stage.get("reserved_mib", 0)
            if "missing" not in stage:
                contexts[name] = max(0, _used_mib(nvml, todo.gpu, job.pid) - int(taken))
    if "context" not in contexts:
        raise GpuError("the calibration's job printed nothing", "cuda-job")
    libraries = seen.get("libraries", {})
    with_torch = {name: mib for name, mib in contexts.items() if name != "context"}
    found = seen.get("convolutions", {}).get("convolutions", [])
    bare = contexts["context"]
    missing = str(libraries.get("missing", "it ended early"))
    how = f"torch in {todo.python}" if with_torch else f"bare context alone ({missing})"
    total = int(seen["context"].get("total_mib", todo.gpu.total_mib))
    return Calibration(
        card=todo.gpu.name,
        total_mib=todo.gpu.total_mib,
        visible_mib=total if todo.gpu.uuid.startswith(MIG) else None,
        driver=nvml.driver(),
        cuda=str(libraries.get("cuda", seen["context"].get("cuda", ""))),
        torch=str(libraries.get("torch", "")),
        cudnn=str(libraries.get("cudnn", "")),
        measured=f"{date.today().isoformat()} on {socket.gethostname()}"[:64],
        how=how[:512],
        bare_context_mib=bare,
        context_mib=max(with_torch.values()) if with_torch else max(bare, default_mib),
        # 0: this PyTorch does not take it from the allocator's memory, or was not asked
        blas=int(libraries.get("blas", Stack(0).blas)),
        workspace=workspace(found),
    )


def _used_mib(nvml: Nvml, before: Gpu, pid: int) -> int:
    """MiB of the job: as NVML shows its process, else what the GPU holds more than before."""
    now = nvml.by_uuid([before.uuid])[0]
    own = () if isinstance(now.processes, Missing) else now.processes
    for process in own:
        if process.pid == pid and isinstance(process.used_mib, int):
            return process.used_mib
    # In a container NVML's process ids are the host's, and MIG may tell none.
    if not isinstance(before.processes, Missing) and before.processes:
        raise GpuError(
            f"NVML does not show process {pid} and others are on {before.uuid}:"
            " wait for an idle GPU, or name one with --device",
            "gpu-busy",
        )
    return now.used_mib - before.used_mib


def workspace(found: Sequence[Sequence[int]]) -> Workspace:
    """Shares of bytes read and written from rows (bytes, groups, forward, data, weight): sums over
    sums, so that the large convolutions, which make the peak, count most. Without rows the
    built-in ones."""
    plain = [row for row in found if row[1] == 1]
    grouped = [row for row in found if row[1] > 1]
    base = sum(row[0] for row in plain)
    if not base:
        return Workspace()
    forward, data, weight = (round(sum(row[k] for row in plain) / base, 3) for k in (2, 3, 4))
    most = max(forward, data, weight)
    over = sum(row[0] for row in grouped)
    share = sum(max(row[2:5]) for row in grouped) / over if over else 0.0
    part = round(min(100.0, share / most), 3) if most else Workspace().grouped
    return Workspace(forward=forward, data=data, weight=weight, grouped=part)


def as_toml(found: Calibration, gpu_type: str) -> str:
    """The file's text."""
    lines = [f"# GPU type {gpu_type}, written by coloc calibrate"]
    for name, value in found.model_dump(exclude={"workspace"}, exclude_none=True).items():
        lines.append(f"{name} = {json.dumps(value)}")
    lines += ["", "# cuDNN's workspace over the bytes that a convolution reads and writes"]
    lines.append("[workspace]")
    lines += [f"{name} = {value}" for name, value in found.workspace.model_dump().items()]
    return "\n".join(lines) + "\n"


def write(path: Path, text: str) -> None:
    """Puts the file in its place at once. Raises UsageFault where that cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as err:
        raise UsageFault(f"{path}: cannot be written: {err}; --out names another") from err
