# SPDX-License-Identifier: Apache-2.0
"""Time of Prolog and Epilog with the interpreter's start, for our jobs and for all others."""

import os
import pwd
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench import link_bench  # noqa: E402

ME = pwd.getpwuid(os.geteuid()).pw_name
HOOKS = {
    "prolog": ROOT / "prolog" / "coloc-prolog",
    "epilog": ROOT / "epilog" / "coloc-epilog",
}


def environment(folder: Path, *, ours: bool, link: tuple[str, Path] | None) -> dict[str, str]:
    """What slurmd gives a hook; nothing of this process's own environment. ``link``: colocd's
    host:port and munged's socket, None where there is no colocd."""
    config = folder / "coloc.toml"
    config.write_text(
        f'version = 1\n[daemon]\nsocket = "{folder}/none.sock"\nslurm_user = "{ME}"\n'
        f'[hooks]\nspool_dir = "{folder}/spool"\nrun_dir = "{folder}/run"\n'
    )
    if link:
        with config.open("a") as file:
            file.write(f'[network]\ncontrollers = ["{link[0]}"]\nmunge_socket = "{link[1]}"\n')
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
    _rows("without --coloc", rounds, ours=False, link=None)
    _rows("colocd away", rounds, ours=True, link=None)
    with link_bench.served() as link:
        _rows("colocd over TCP", rounds, ours=True, link=link)
    return 0


def _rows(what: str, rounds: int, *, ours: bool, link: tuple[str, Path] | None) -> None:
    for name, script in HOOKS.items():
        with tempfile.TemporaryDirectory() as folder:
            times = times_ms(script, environment(Path(folder), ours=ours, link=link), rounds)
        p99 = statistics.quantiles(times, n=100)[98]
        row = f"{statistics.median(times):>10.1f} {p99:>8.1f} {max(times):>9.1f}"
        print(f"{f'{name}, {what}':<28} {row}")


if __name__ == "__main__":
    sys.exit(main())
