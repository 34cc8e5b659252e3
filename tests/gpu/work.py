# SPDX-License-Identifier: Apache-2.0
"""Small trainings on the place's GPU: started together, timed, watched."""

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slurm_coloc.adapters import nvml
from slurm_coloc.adapters.mps import daemon
from slurm_coloc.adapters.mps.daemon import Who
from slurm_coloc.adapters.mps.processes import Process
from slurm_coloc.adapters.nvml.sampling import Sampling
from tests.gpu.place import Place

LIMIT_S = 300.0
MEMORY_MIB = 1500
#: SM activity of the small training where it is emulated: that of a small network on small pictures
SMACT = 0.25
_DONE = re.compile(r"emu-train: done .*wall_s=([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Ended:
    """One training. ``wall_s``: of its work alone, None where it did not come to its end."""

    code: int
    wall_s: float | None
    said: str


@contextmanager
def mps(place: Place, name: str = "m", uid: int | None = None) -> Iterator[tuple[Path, Process]]:
    """A control daemon by our own code: its folder and its process. Raises GpuError."""
    who = Who(place.uid if uid is None else uid, place.uid if uid is None else uid)
    folder = place.scratch / name / who.name
    folder.parent.mkdir(mode=0o755, exist_ok=True)
    process = daemon.start(place.control, folder, place.gpu.uuid, who, place.environment()).process
    try:
        yield folder, process
    finally:
        daemon.stop(place.control, folder, process, place.environment())


def client(place: Place, folder: Path | None, **more: str) -> dict[str, str]:
    """The environment of a client of that daemon; of no daemon where it is None."""
    if folder is None:
        return place.environment(**more)
    pipes = {
        "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
    }
    return place.environment(**pipes, **more)


def command(place: Place, amount: float, memory_mib: int = MEMORY_MIB) -> list[str]:
    """A small training of ``amount`` (steps on a real GPU, seconds alone on the emulated one)."""
    if not place.real:
        size = ["--memory-mib", str(memory_mib), "--smact", str(SMACT), "--work-s", str(amount)]
        return [str(shutil.which("emu-train")), "--ramp-s", "0", *size]
    program = [place.python or sys.executable, str(Path(__file__).with_name("train.py"))]
    size = ["--memory-mib", str(memory_mib), "--steps", str(int(amount))]
    return [*program, *size, *([] if place.python else ["--libcuda"])]


def start(
    place: Place, words: Sequence[str], env: dict[str, str], uid: int | None = None
) -> subprocess.Popen[str]:
    """A process of the place's user, or of another."""
    who = place.uid if uid is None else uid
    return subprocess.Popen(
        words,
        env=env,
        text=True,
        cwd="/",
        user=who,
        group=who,
        extra_groups=[],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str], limit_s: float = LIMIT_S) -> Ended:
    """Wait for its end; one that takes too long is killed."""
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Ended(-9, None, f"no end within {limit_s:.0f} s")
    return Ended(process.returncode, _wall_s(out), (out + err)[-2000:])


def _wall_s(out: str) -> float | None:
    if hit := _DONE.search(out):
        return float(hit[1])
    for line in out.splitlines():
        if line.startswith("{") and "wall_s" in (told := json.loads(line)):
            return float(told["wall_s"])
    return None


def together(
    place: Place, count: int, amount: float, folder: Path | None
) -> tuple[list[Ended], float | None]:
    """So many trainings at once, and the mean SM activity meanwhile where it can be had. On a real
    GPU they begin when all have loaded what they need, which takes longer than the work."""
    env = client(place, folder)
    words = command(place, amount) + (["--wait"] if place.real else [])
    running = [start(place, words, env) for _ in range(count)]
    if place.real:
        for each in running:
            each.stdout.readline()  # type: ignore[union-attr]  # "" where it has ended
        for each in running:
            with contextlib.suppress(OSError):
                each.stdin.write("\n")  # type: ignore[union-attr]
                each.stdin.flush()  # type: ignore[union-attr]
    time.sleep(1.0)
    smact = sm_activity(place)
    return [finish(each) for each in running], smact


def sm_activity(place: Place, samples: int = 10) -> float | None:
    """Mean over two seconds by DCGM's field 1002, or else by NVML's GPM; None without both."""
    dcgmi = shutil.which("dcgmi")
    if dcgmi is None:
        return _by_gpm(place)
    words = [dcgmi, "dmon", "-e", "1002", "-d", "200", "-c", str(samples)]
    words += ["-i", str(place.index)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    values = re.findall(r"^GPU\s+\d+\s+([0-9.]+)\s*$", done.stdout, re.MULTILINE)
    return sum(map(float, values)) / len(values) if values else None


def _by_gpm(place: Place) -> float | None:
    with nvml.Nvml() as lib:
        sampling = Sampling(lib)
        sampling.take(profile=True)
        time.sleep(2.0)
        for sample in sampling.take(profile=True):
            if sample.unit.uuid == place.gpu.uuid and sample.profile is not None:
                return sample.profile.smact
    return None
