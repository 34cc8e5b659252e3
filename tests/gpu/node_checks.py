# SPDX-License-Identifier: Apache-2.0
"""What a node tells and costs: NVML and accounting under MPS, Prolog, Epilog, the agent's look."""

import os
import pwd
import statistics
import subprocess
import sys
import time

from slurm_coloc.adapters import nvml
from slurm_coloc.errors import GpuError
from tests.gpu import work
from tests.gpu.place import ROOT, Place
from tests.gpu.verdict import Found, judged, untested

LOOKS = 30
HOOKS = 5
HOOK_LIMIT_S = 2.0


def under_mps(place: Place) -> list[Found]:
    """Whether NVML shows the clients themselves, and accounting their peaks."""
    with work.mps(place) as (folder, process):
        words = work.command(place, 100_000 if place.real else 60.0)
        running = work.start(place, words, work.client(place, folder))
        seen = _until_seen(place, running.pid)
        accounting = _accounted(place, running.pid)
        running.kill()
        running.communicate()
    listed = {pid: used for pid, used in seen.items() if pid != process.pid}
    return [
        judged(
            "clients' pids in NVML's list",
            running.pid in seen,
            f"client {running.pid}; listed with MiB: {listed}",
        ),
        accounting,
    ]


def _until_seen(place: Place, pid: int) -> dict[int, object]:
    seen: dict[int, object] = {}
    end_s = time.monotonic() + 30
    while time.monotonic() < end_s:
        with nvml.Nvml() as lib:
            (gpu,) = lib.by_uuid([place.gpu.uuid])
        if isinstance(gpu.processes, tuple):
            seen = {each.pid: each.used_mib for each in gpu.processes}
        used = seen.get(pid)
        if isinstance(used, int) and used >= work.MEMORY_MIB:
            break
        time.sleep(0.2)
    return seen


def _accounted(place: Place, pid: int) -> Found:
    name = "accounting per process under MPS"
    try:
        with nvml.Nvml() as lib:
            uses = {use.pid: use.peak_mib for use in lib.accounted(place.gpu.uuid)}
    except GpuError as err:
        return untested(name, f"{err.message}; it is left as it is")
    peak = uses.get(pid)
    if peak is None:
        return judged(name, False, f"client {pid} is not in it; there are {len(uses)} others")
    return judged(name, peak >= work.MEMORY_MIB, f"peak {peak} MiB of {work.MEMORY_MIB} taken")


def looks(place: Place) -> list[Found]:
    """What one look at the GPU costs; the agent takes one a second."""
    with nvml.Nvml() as lib:
        lib.all()
        cpu, began = time.process_time(), time.monotonic()
        for _ in range(LOOKS):
            lib.all()
        cpu_ms = (time.process_time() - cpu) * 1e3 / LOOKS
        wall_ms = (time.monotonic() - began) * 1e3 / LOOKS
    text = f"{wall_ms:.2f} ms, {cpu_ms:.2f} ms of a CPU: {cpu_ms / 10:.2f} % of one at 1 a second"
    return [judged("a look at the GPUs", cpu_ms < 20, text, wall_ms=wall_ms, cpu_ms=cpu_ms)]


def hooks(place: Place) -> list[Found]:
    """Prolog and Epilog with this GPU, interpreter start included; nobody at the other end."""
    run_dir = place.scratch / "jobs"
    spool = place.scratch / "spool"
    for folder in (run_dir, spool):
        folder.mkdir(mode=0o755)
    config = place.scratch / "coloc.toml"
    user = pwd.getpwuid(os.geteuid()).pw_name
    config.write_text(
        f'version = 1\n[daemon]\nsocket = "{place.scratch}/none.sock"\nslurm_user = "{user}"\n'
        f'[hooks]\nrun_dir = "{run_dir}"\nspool_dir = "{spool}"\n'
        f'[sharing]\nmps_control = "{place.control}"\n'
    )
    times: dict[str, list[float]] = {"prolog": [], "epilog": []}
    failed = ""
    for number in range(1, HOOKS + 1):
        for stage, taken in times.items():
            began = time.monotonic()
            done = subprocess.run(
                [sys.executable, "-m", "slurm_coloc", stage],
                env=_environment(place, number, str(config)),
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
            taken.append(time.monotonic() - began)
            failed = failed or (done.stderr.strip()[-200:] if done.returncode else "")
    return [
        judged(
            stage.capitalize(),
            # Beside other tests on a busy machine the emulated one says nothing of time.
            not failed and (max(taken) < HOOK_LIMIT_S or not place.real),
            failed
            or f"median {statistics.median(taken) * 1e3:.0f} ms, longest {max(taken) * 1e3:.0f} ms"
            f" of {HOOKS}, MPS daemon {'started' if stage == 'prolog' else 'stopped'} in it",
            median_s=statistics.median(taken),
        )
        for stage, taken in times.items()
    ]


def _environment(place: Place, job_id: int, config: str) -> dict[str, str]:
    return {
        **place.environment(),
        "CUDA_VISIBLE_DEVICES": place.gpu.uuid,
        "COLOC_CONFIG": config,
        "COLOC_PROGRAM": "/usr/bin/coloc",
        "SPANK_COLOC_V": "1",
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOB_UID": str(place.uid),
        "SLURM_JOB_GID": str(place.uid),
        "SLURM_JOB_USER": "nobody",
        "SLURM_JOB_WORK_DIR": "/",
        "SLURM_CLUSTER_NAME": "c",
        "SLURMD_NODENAME": "n1",
    }
