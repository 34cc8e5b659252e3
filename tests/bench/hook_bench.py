# SPDX-License-Identifier: Apache-2.0
"""Time of Prolog and Epilog with the interpreter's start, for our jobs and for all others.

Alone: `.venv/bin/python tests/bench/hook_bench.py [ROUNDS]`. The last rows are those of a shared
GPU, with the emulated NVML and MPS daemon (as root): the first job of a user starts the daemon, the
last one ends it; `busy`: twelve others of that user have it, eight of them with a training.

`cpu ms`: processor time of the hook and of what it started and waited for, the median. It is what
the hook costs where others compute beside it, and what can be compared between two busy hours.
"""

import contextlib
import json
import os
import pwd
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from slurm_coloc.adapters import slurmd  # noqa: E402
from slurm_coloc.adapters.link.agent_socket import AgentWire  # noqa: E402
from slurm_coloc.errors import DaemonUnreachable  # noqa: E402
from slurm_coloc.flow.launch.devices import LAST_LIST  # noqa: E402
from tests.bench import link_bench  # noqa: E402

ME = pwd.getpwuid(os.geteuid()).pw_name
USER = 65534  # nobody: MPS daemons run as their users
JOBS, TRAININGS = 12, 8
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


Times = tuple[float, float]


def times_ms(script: Path, env: dict[str, str], rounds: int) -> list[Times]:
    """Wall and processor time of each start, in milliseconds."""
    return [time_ms(script, env) for _ in range(rounds)]


def time_ms(script: Path, env: dict[str, str]) -> Times:
    """Those of one."""
    begin, used = time.perf_counter(), _children_s()
    subprocess.run([str(script)], env=env, check=True, capture_output=True)
    return (time.perf_counter() - begin) * 1000, (_children_s() - used) * 1000


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(rounds: int = 100) -> int:
    """Print median, 99th percentile and worst of each hook."""
    print(f"{'hook':<28} {'median ms':>10} {'p99 ms':>8} {'worst ms':>9} {'cpu ms':>7}")
    _rows("without --coloc", rounds, ours=False, link=None)
    _rows("colocd away", rounds, ours=True, link=None)
    with link_bench.served() as link:
        _rows("colocd over TCP", rounds, ours=True, link=link)
        _rows("via the agent", rounds, ours=True, link=link, agent=True)
        if os.geteuid() == 0 and shutil.which("cc"):
            _shared_rows(rounds, link)
        else:
            print("with NVML and MPS: needs root and a C compiler")
    return 0


def _rows(
    what: str, rounds: int, *, ours: bool, link: tuple[str, Path] | None, agent: bool = False
) -> None:
    for name, script in HOOKS.items():
        with tempfile.TemporaryDirectory() as folder:
            env = environment(Path(folder), ours=ours, link=link)
            with _agent(Path(folder), env) if agent else contextlib.nullcontext():
                _row(f"{name}, {what}", times_ms(script, env, rounds))


@contextlib.contextmanager
def _agent(folder: Path, env: dict[str, str]) -> Iterator[None]:
    """The node's agent, when it passes requests on."""
    with (folder / "coloc.toml").open("a") as file:
        file.write("[agent]\nsample = false\n")
    argv = [env["COLOC_PROGRAM"], "agent", "--node", env["SLURMD_NODENAME"]]
    running = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not _passes_on(folder / "run"):
            time.sleep(0.05)
        yield
    finally:
        running.terminate()
        running.wait(10)


def _passes_on(run_dir: Path) -> bool:
    try:
        with AgentWire(run_dir, 1.0) as wire:
            return bool(wire.call("launch", node="n1")["ok"])
    except (DaemonUnreachable, FileNotFoundError):
        return False


def _row(name: str, times: list[Times]) -> None:
    walls, used = [one[0] for one in times], statistics.median(one[1] for one in times)
    p99 = statistics.quantiles(walls, n=100)[98]
    row = f"{statistics.median(walls):>10.1f} {p99:>8.1f} {max(walls):>9.1f} {used:>7.1f}"
    print(f"{name:<28} {row}", flush=True)


def _shared_rows(rounds: int, link: tuple[str, Path]) -> None:
    """Of jobs on shares of one GPU."""
    with _gpu() as (folder, emulated):
        env = environment(folder, ours=True, link=link) | emulated
        env |= {"SLURM_JOB_UID": str(USER), "SLURM_JOB_GID": str(USER), "SLURM_JOB_USER": "nobody"}
        with (folder / "coloc.toml").open("a") as file:
            control = folder / "bin" / "nvidia-cuda-mps-control"
            file.write(f'[sharing]\nmps_control = "{control}"\n')
        env |= _listed(folder)
        _lives("NVML, MPS first/last", env, rounds)
        with _busy(folder, env):
            _lives("NVML, MPS busy", env, rounds)


def _listed(folder: Path) -> dict[str, str]:
    """This process as the slurmd above the hooks, with the list of GPUs that an earlier job's hook
    has kept; the environment."""
    Path("/proc/self/comm").write_text("slurmd")
    conf = folder / "etc" / "slurm.conf"
    conf.parent.mkdir()
    conf.touch()
    began = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    gpus = [slurmd.GresGpu("a100", ("/dev/nvidia0",))]
    kept = {"key": slurmd.list_key(conf, (os.getpid(), began)), "gpus": gpus}
    (folder / "run").mkdir(mode=0o711, exist_ok=True)
    (folder / "run" / LAST_LIST).write_text(json.dumps(kept))
    return {"SLURM_CONF": str(conf)}


def _lives(what: str, env: dict[str, str], rounds: int) -> None:
    """Prolog and Epilog of one job after the other; the first is not counted."""
    state = Path(env["COLOC_CONFIG"]).parent / "run" / f"{env['SLURM_JOB_ID']}.json"
    time_ms(HOOKS["prolog"], env)
    told = json.loads(state.read_text())
    assert told["gpu"]["available"] and told["sharing"]["method"] == "mps", told
    time_ms(HOOKS["epilog"], env)
    times: dict[str, list[Times]] = {name: [] for name in HOOKS}
    for _ in range(rounds):
        for name, script in HOOKS.items():
            times[name].append(time_ms(script, env))
    for name, each in times.items():
        _row(f"{name}, {what}", each)


@contextlib.contextmanager
def _gpu() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder with an emulated node in it, and the node's environment."""
    folder = Path(tempfile.mkdtemp(prefix="coloc-hooks-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        argv = ["make", "-s", "-C", str(ROOT / "slurm_coloc/lab/emulator"), f"BUILD={folder}"]
        subprocess.run(argv, check=True)
        env = {"COLOC_EMU_LEDGER": f"{folder}/ledger", "LD_LIBRARY_PATH": f"{folder}/lib"}
        made = [f"{folder}/bin/coloc-emu", "init", "--machine", "1xa100-40gb", f"{folder}/ledger"]
        subprocess.run(made, check=True, env=env)
        (folder / "ledger").chmod(0o666)
        yield folder, env
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _busy(folder: Path, env: dict[str, str]) -> Iterator[None]:
    """Other jobs of the same user on that GPU; trainings of some, as clients of its daemon."""
    jobs = [env | {"SLURM_JOB_ID": str(100 + number)} for number in range(JOBS)]
    running = []
    try:
        for one in jobs:
            time_ms(HOOKS["prolog"], one)
        (pipe,) = (folder / "run" / "mps").glob(f"*/{USER}/pipe")
        train = [f"{folder}/bin/emu-train", "--memory-mib", "500", "--smact", "0.1"]
        for one in jobs[:TRAININGS]:
            client = one | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_VISIBLE_DEVICES": "0"}
            words = [*train, "--work-s", "3600"]
            running.append(
                subprocess.Popen(
                    words, env=client, user=USER, group=USER, stdout=subprocess.DEVNULL
                )
            )
        time.sleep(2.0)
        yield
    finally:
        for each in running:
            each.terminate()
            each.wait(10)
        for one in jobs:
            time_ms(HOOKS["epilog"], one)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
