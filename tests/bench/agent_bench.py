# SPDX-License-Identifier: Apache-2.0
"""What the agent costs a node: share of a core and memory, over a minute, on three nodes.

The GPUs are emulated, so NVML's part is that of the stand-in, which locks a file and reads /proc;
the rest (attribution, sums, records, link) is the agent's own. It looks for a colocd all the time
that is not there. The share is processor time, so it does not count what else runs, but on a busy
machine the same work takes more of it (shared caches and cores): `load` says how busy it was.

Alone: `.venv/bin/python tests/bench/agent_bench.py`; COLOC_BENCH_S=30 for half a minute a row.
"""

import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: GPUs, jobs on them (each with one process)
NODES = (("8xh100-80gb", 16), ("dgx-station-a100", 4), ("dgx-station-a100", 28))
HELD_MIB = 5000  # each of them: seven fit on the smallest card
SETTLE_S, SPAN_S = 10.0, float(os.environ.get("COLOC_BENCH_S", "60"))
ME = pwd.getpwuid(os.geteuid()).pw_name
HERTZ = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HERTZ


def memory_mib(pid: int, what: str) -> float:
    """VmRSS or VmHWM of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def children(pid: int) -> list[int]:
    """Of a process."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(word) for word in found]


@contextmanager
def node(folder: Path, machine: str, jobs: int) -> Iterator[dict[str, str]]:
    """Emulated GPUs, trainings spread over them, and the states of their jobs."""
    build = folder / "emulator"
    subprocess.run(
        ["make", "-s", "-C", ROOT / "slurm_coloc/lab/emulator", f"BUILD={build}"], check=True
    )
    ledger = folder / "ledger"
    env = {"COLOC_EMU_LEDGER": str(ledger), "LD_LIBRARY_PATH": str(build / "lib")}
    tool = [str(build / "bin" / "coloc-emu")]
    subprocess.run([*tool, "init", "--machine", machine, ledger], check=True, env=env)
    shown = subprocess.run([*tool, "show", "--json"], check=True, env=env, capture_output=True)
    uuids = [gpu["uuid"] for gpu in json.loads(shown.stdout)["gpus"]]
    (folder / "run").mkdir(mode=0o755)
    trainings = []
    try:
        for number in range(jobs):
            gpu = number % len(uuids)
            state = {
                "job_id": 100 + number,
                "restart": 0,
                "uid": os.geteuid(),
                "started_s": time.time(),
                "gpu": {"devices": [{"uuid": uuids[gpu]}]},
            }
            (folder / "run" / f"{100 + number}.json").write_text(json.dumps(state))
            own = {"CUDA_VISIBLE_DEVICES": str(gpu), "SLURM_JOB_ID": str(100 + number)}
            argv = [
                str(build / "bin" / "emu-train"),
                "--memory-mib",
                str(HELD_MIB),
                "--smact",
                "0.4",
            ]
            argv += ["--work-s", "3600", "--log-every-s", "3600"]
            trainings.append(subprocess.Popen(argv, env=env | own, stdout=subprocess.DEVNULL))
        yield env
    finally:
        for one in trainings:
            one.kill()
            one.wait()


def measure(folder: Path, env: dict[str, str], dcgmi: str) -> tuple[float, float, float, float]:
    """Share of a core (%), its children's, memory and peak memory (MiB) of the agent."""
    config = folder / "coloc.toml"
    config.write_text(
        f'version = 1\n[daemon]\nslurm_user = "{ME}"\nsocket = "{folder}/none.sock"\n'
        f'[hooks]\nrun_dir = "{folder}/run"\nspool_dir = "{folder}/spool"\n'
        f'[agent]\ndcgmi = "{dcgmi}"\n'
    )
    agent = subprocess.Popen(
        [sys.executable, "-m", "slurm_coloc", "agent", "--node", "n1"],
        env={**os.environ, **env, "COLOC_CONFIG": str(config), "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(SETTLE_S)
        below = children(agent.pid)
        began_s, own_s = time.monotonic(), cpu_s(agent.pid)
        others_s = sum(cpu_s(pid) for pid in below)
        time.sleep(SPAN_S)
        past_s = time.monotonic() - began_s
        own = 100 * (cpu_s(agent.pid) - own_s) / past_s
        others = 100 * (sum(cpu_s(pid) for pid in below) - others_s) / past_s
        return own, others, memory_mib(agent.pid, "VmRSS"), memory_mib(agent.pid, "VmHWM")
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()
        for path in (folder / "run" / "use").iterdir():
            record = json.loads(path.read_text())
            # an agent that slept would be cheap
            assert record["samples"] > 0.9 * SPAN_S and record["last"]["held_mib"] == HELD_MIB, path
            path.unlink()


def main() -> int:
    """Print the table; 1 where the agent takes more than it may."""
    print(f"emulated GPUs, a sample a second, {SPAN_S:.0f} s a row")
    heads = f"{'agent':>7} {'dcgmi':>7} {'memory':>9} {'at most':>9} {'load':>5}"
    print(f"{'node':<25} {'from':<5} {heads}")
    worst = 0
    for machine, jobs in NODES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o755)
            with node(folder, machine, jobs) as env:
                worst |= rows(folder, env, f"{machine}, {jobs} jobs")
    print("bound: 1 % of a core, 100 MiB; dcgmi's part is the stand-in's")
    return worst


def rows(folder: Path, env: dict[str, str], label: str) -> int:
    """One row for each source of the counters; 1 where one is over the bound."""
    worst = 0
    for source, dcgmi in (("DCGM", f"{folder}/emulator/bin/dcgmi"), ("NVML", "/nonexistent")):
        own, others, mib, most = measure(folder, env, dcgmi)
        print(
            f"{label:<25} {source:<5} {own:>5.2f} % {others:>5.2f} % {mib:>5.1f} MiB"
            f" {most:>5.1f} MiB {os.getloadavg()[0]:>5.1f}",
            flush=True,
        )
        worst |= int(own > 1.0 or most > 100.0)
    return worst


if __name__ == "__main__":
    sys.exit(main())
