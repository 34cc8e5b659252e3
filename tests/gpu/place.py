# SPDX-License-Identifier: Apache-2.0
"""Where the checks run: on the GPU of this machine, or else on an emulated one, built here."""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from slurm_coloc.adapters import nvml

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "test-gpu"
MARK = "COLOC_TEST_GPU_EMULATED"  # set in the process that sees the emulated GPU
#: the emulated one shares as the real does: by MPS for its clients, by turns for others
MACHINE = ("--machine", "1xa100-40gb", "--sharing", "auto", "--driver", "615.71.04")
NOBODY = 65534


@dataclass(slots=True)
class Place:
    """One GPU, alone for the checks, and how a small training is started on it.

    ``python``: one that has torch, "" where none was found; ``uid``: the trainings' user.
    """

    real: bool
    gpu: nvml.Gpu
    index: int  # in NVML's order, which DCGM shares
    driver: str
    control: Path
    scratch: Path
    python: str
    uid: int

    @property
    def title(self) -> str:
        """The first line of the report."""
        kind = (
            "on real hardware" if self.real else "on the EMULATED GPU: no figure is a measurement"
        )
        name = f"{self.gpu.name}, {self.gpu.total_mib} MiB, driver {self.driver or 'unknown'}"
        return f"test-gpu: {kind}: {name}"

    def environment(self, **more: str) -> dict[str, str]:
        """Of a training: this one GPU, and no daemon but the one that ``more`` names."""
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CUDA_MPS_", "SLURM_", "SPANK_"))
        }
        nowhere = str(self.scratch / "no-daemon")
        return {
            **own,
            "HOME": str(self.scratch),  # root's is closed to the trainings' user
            "USER": "trainings",  # torch asks for a name, which a bare number has not
            "CUDA_VISIBLE_DEVICES": self.gpu.uuid,
            "CUDA_MPS_PIPE_DIRECTORY": nowhere,
            **more,
        }


def find() -> Place:
    """The place of this process; starts the process anew where that is the emulated GPU."""
    emulated = os.environ.get(MARK) == "1"
    if not emulated and (why := _not_real()):
        _again(why)
    with nvml.Nvml() as lib:
        gpu, driver = _idle(lib), lib.driver()
        index = [each.uuid for each in lib.all()].index(gpu.uuid)
    control = shutil.which("nvidia-cuda-mps-control") or "/usr/bin/nvidia-cuda-mps-control"
    scratch = Path(tempfile.mkdtemp(prefix="coloc-gpu-", dir="/tmp"))  # short: sockets' names are
    scratch.chmod(0o755)
    return Place(
        real=not emulated,
        gpu=gpu,
        index=index,
        driver=driver,
        control=Path(control),
        scratch=scratch,
        python="" if emulated else _with_torch(),
        uid=int(os.environ.get("SUDO_UID", 0)) or (NOBODY if os.geteuid() == 0 else os.getuid()),
    )


def _idle(lib: nvml.Nvml) -> nvml.Gpu:
    """The GPU without processes that has most memory, else the first."""
    idle = [gpu for gpu in lib.all() if isinstance(gpu.processes, tuple) and not gpu.processes]
    return max(idle, key=lambda gpu: gpu.free_mib) if idle else lib.all()[0]


def _not_real() -> str:
    """Why there is no real GPU here, "" where there is."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return "nvidia-smi is not here"
    try:
        listed = subprocess.run([smi, "-L"], capture_output=True, text=True, timeout=30)
        library = ctypes.CDLL("libnvidia-ml.so.1")
        if listed.returncode or "GPU 0" not in listed.stdout:
            return f"nvidia-smi -L: {(listed.stdout + listed.stderr).strip()[:100]}"
        if library.nvmlInit_v2():
            return "NVML does not start"
    except (OSError, subprocess.TimeoutExpired) as err:
        return str(err)[:100]
    beside = Path(smi).resolve().with_name("coloc-emu")
    return "the nvidia-smi on PATH is an emulated one" if beside.exists() else ""


def _again(why: str) -> None:
    """Build the emulated GPU and run this program on it; does not return."""
    print(f"test-gpu: no real GPU ({why}): building the emulated one", flush=True)
    build = Path(tempfile.mkdtemp(prefix="coloc-emu-", dir="/tmp"))
    build.chmod(0o755)
    try:
        make = [
            "make",
            "-s",
            "-C",
            str(ROOT / "slurm_coloc" / "lab" / "emulator"),
            f"BUILD={build}",
        ]
        subprocess.run(make, check=True)
        ledger = build / "ledger"
        subprocess.run([build / "bin" / "coloc-emu", "init", *MACHINE, ledger], check=True)
        ledger.chmod(0o666)
        environment = {
            **os.environ,
            MARK: "1",
            "PATH": f"{build / 'bin'}:{os.environ.get('PATH', '')}",
            "LD_LIBRARY_PATH": str(build / "lib"),
            "COLOC_EMU_LEDGER": str(ledger),
        }
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    finally:
        shutil.rmtree(build, ignore_errors=True)


def _with_torch() -> str:
    """A Python whose torch sees a GPU: $TORCH, this one, or the first on PATH."""
    ask = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    for python in (os.environ.get("TORCH"), sys.executable, shutil.which("python3")):
        if python and not subprocess.run([python, "-c", ask], capture_output=True).returncode:
            return python
    return ""
