# SPDX-License-Identifier: Apache-2.0
"""Time of Prolog and Epilog with the interpreter's start, for our jobs and for all others."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOOKS = {
    "prolog": ROOT / "prolog" / "coloc-prolog",
    "epilog": ROOT / "epilog" / "coloc-epilog",
}


def environment(folder: Path, *, ours: bool) -> dict[str, str]:
    """What slurmd gives a hook; nothing of this process's own environment."""
    config = folder / "coloc.toml"
    config.write_text(
        f'version = 1\n[daemon]\nsocket = "{folder}/none.sock"\n'
        f'[hooks]\nspool_dir = "{folder}/spool"\nrun_dir = "{folder}/run"\n'
    )
    (folder / "spool").mkdir(exist_ok=True)
    log = folder / "job.log"
    log.write_text("step\n" * 50_000)
    program = ROOT / ".venv" / "bin" / "coloc"
    env = {
        "COLOC_PROGRAM": str(program),
        "COLOC_CONFIG": str(config),
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_USER": "root",
        "SLURM_JOB_GID": str(os.getgid()),
        "SLURM_JOB_GPUS": "0",
        "SLURM_JOB_STDOUT": str(log),
        "SLURM_JOB_STDIN": "/dev/null",
        "SLURM_JOB_WORK_DIR": str(folder),
        "SLURM_JOB_EXIT_CODE2": "1:0",
        "SLURMD_NODENAME": "n1",
        "SLURM_CLUSTER_NAME": "bench",
    }
    return {**env, "SPANK_COLOC_V": "1"} if ours else env


def times_ms(script: Path, env: dict[str, str], rounds: int) -> list[float]:
    """Wall time of each start, in milliseconds."""
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        subprocess.run([str(script)], env=env, check=True, capture_output=True)
        found.append((time.perf_counter() - begin) * 1000)
    return found


def main(rounds: int = 100) -> int:
    """Print median, 99th percentile and worst of each hook."""
    print(f"{'hook':<28} {'median ms':>10} {'p99 ms':>8} {'worst ms':>9}")
    for ours in (False, True):
        for name, script in HOOKS.items():
            with tempfile.TemporaryDirectory() as folder:
                times = times_ms(script, environment(Path(folder), ours=ours), rounds)
            label = f"{name}, {'with' if ours else 'without'} --coloc"
            p99 = statistics.quantiles(times, n=100)[98]
            print(f"{label:<28} {statistics.median(times):>10.1f} {p99:>8.1f} {max(times):>9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
