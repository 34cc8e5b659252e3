# SPDX-License-Identifier: Apache-2.0
"""The levels of the fence below a real process: limits of cgroups, and the frameworks' own.

The cgroups are the kernel's own; who counts device memory in them is the emulated driver.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_coloc.core.gpu import fence
from slurm_coloc.flow.watch.record import HOLDER, limit_held_by

from .conftest import LIMIT_S, Node

JOB = 4711
SET = """
import sys
from pathlib import Path
from slurm_coloc.adapters import cgroup
from slurm_coloc.flow.launch import hooks
cgroup.ROOT = Path(sys.argv.pop(1))
sys.exit(hooks.run("fence", sys.argv[1:]))
"""


@pytest.fixture
def root() -> Path:
    """Where cgroups (v2) can be made."""
    for mount in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (mount / "cgroup.controllers").is_file() and os.access(mount, os.W_OK):
            return mount
    pytest.skip("no cgroup v2 that this user may write")


@pytest.fixture
def job(root: Path) -> Iterator[Path]:
    """A job's cgroup as Slurm makes it, with a step and a task."""
    scope = root / f"coloc-test-{os.getpid()}"
    try:
        (scope / f"job_{JOB}" / "step_batch" / "user" / "task_0").mkdir(parents=True)
    except OSError as err:
        pytest.skip(f"cgroups cannot be made here: {err.strerror}")
    yield scope / f"job_{JOB}"
    for folder in sorted(scope.rglob("*/"), reverse=True):
        if folder.is_dir():
            folder.rmdir()
    scope.rmdir()


@pytest.fixture
def new(make_node: Callable[..., Node]) -> Node:
    """A node whose driver knows memory limits of cgroups."""
    return make_node("2xa100-40gb", "--driver", "615.71.04")


def train(node: Node, group: Path | None, *args: object, **env: str) -> subprocess.Popen[str]:
    """A training, in a task of the job's cgroup."""
    place = f'echo $$ > {group}/step_batch/user/task_0/cgroup.procs || exit 99; exec "$@"'
    command = [str(node.bin / "emu-train"), "--ramp-s", "0", *map(str, args)]
    process = subprocess.Popen(
        ["/bin/sh", "-c", place, "sh", *command] if group else command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=node.env | env,
    )
    node.started.append(process)
    return process


def limit(
    node: Node, root: Path, group: Path, share: str, *argv: str
) -> subprocess.CompletedProcess[str]:
    """`coloc fence` for a process that is in the job's cgroup."""
    run_dir = node.folder / "jobs"
    run_dir.mkdir(mode=0o755, exist_ok=True)
    (run_dir / f"{JOB}.share").write_text(share)
    config = node.folder / "coloc.toml"
    config.write_text(f'version = 1\n[hooks]\nrun_dir = "{run_dir}"\n')
    waiting = subprocess.Popen(
        ["/bin/sh", "-c", f"echo $$ > {group}/step_batch/user/task_0/cgroup.procs; exec sleep 60"]
    )
    try:
        node.until(lambda: "step_batch" in Path(f"/proc/{waiting.pid}/cgroup").read_text())
        return subprocess.run(
            [sys.executable, "-c", SET, str(root), *(argv or (str(JOB), str(waiting.pid)))],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                **node.env,
                "LD_LIBRARY_PATH": str(node.lib),
                "COLOC_CONFIG": str(config),
            },
            timeout=LIMIT_S,
        )
    finally:
        waiting.kill()
        waiting.wait()


def share(node: Node, mib: int) -> str:
    return f"share 1\ncgroup_uuids {node.show()['gpus'][0]['uuid']}\ncgroup_mib {mib}\n"


def test_the_kernel_holds_all_processes_of_a_job(new: Node, root: Path, job: Path) -> None:
    done = limit(new, root, job, share(new, 8192))
    assert (done.returncode, done.stdout) == (0, "cgroup 8192\n"), done.stderr
    assert (new.folder / "jobs" / f"{JOB}.fence").read_text() == "fence 1\nrung cgroup\nmib 8192\n"
    first = train(new, job, "--memory-mib", 6000, "--smact", 0.1, "--work-s", 600)
    new.working(1)
    # MPS would give each its own 8 GiB.
    second = train(new, job, "--memory-mib", 3000, "--smact", 0.1, "--work-s", 1)
    assert second.wait(LIMIT_S) == 1
    assert "out of memory" in second.communicate()[1]
    outside = train(new, None, "--memory-mib", 12000, "--smact", 0.1, "--work-s", 0.1)
    assert outside.wait(LIMIT_S) == 0
    other_gpu = train(
        new, job, *("--memory-mib", 9000, "--smact", 0.1, "--work-s", 0.1), CUDA_VISIBLE_DEVICES="1"
    )
    assert other_gpu.wait(LIMIT_S) == 0
    first.kill()
    again = limit(new, root, job, share(new, 8192))  # the next step: it stands already
    assert again.stdout == "cgroup 8192\n"


def test_a_job_without_a_cgroup_or_a_limit_gets_none(new: Node, root: Path, job: Path) -> None:
    for text, argv, why in (
        (share(new, 8192), (str(JOB), "1"), "no cgroup (v2) of its own"),
        ("share 1\ncgroup_uuids GPU-1\n", (), "left no limit"),
        ("share 2\n" + share(new, 8192), (), "left no limit"),
        (share(new, 8192).replace("8192", "-1"), (), "left no limit"),
        (share(new, 8192), (str(JOB), "1; reboot"), "two numbers"),
        (share(new, 8192), ("../../etc/passwd", "1"), "two numbers"),
        (share(new, 8192).replace("GPU-", "GPU-x"), (), "NVML"),
    ):
        done = limit(new, root, job, text, *argv)
        assert done.returncode != 0
        assert done.stdout == ""
        assert why.lower() in done.stderr.lower(), done.stderr
        assert not (new.folder / "jobs" / f"{JOB}.fence").exists()


def test_an_older_driver_says_so(node: Node, root: Path, job: Path) -> None:
    done = limit(node, root, job, share(node, 8192))
    assert done.returncode != 0
    assert "Not Supported" in done.stderr


TOTAL = 40960 - 424  # what a process can have of the card


@pytest.mark.parametrize(
    ("framework", "env", "peak_mib"),
    [
        ("pytorch", {}, 2000),
        ("jax", {}, int(TOTAL * 0.75)),
        ("jax", {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, 2000),
        ("jax", {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1"}, int(TOTAL * 0.1)),
        ("tensorflow", {}, TOTAL),
        ("tensorflow", {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, 2000),
    ],
)
def test_what_frameworks_take_at_once(
    node: Node, framework: str, env: dict[str, str], peak_mib: int
) -> None:
    args = ("--memory-mib", 2000, "--smact", 0.1, "--work-s", 0.1, "--framework", framework)
    out, _ = train(node, None, *args, **env).communicate(timeout=LIMIT_S)
    assert f"peak_mib={peak_mib} " in out


@pytest.mark.parametrize(
    ("framework", "env", "code", "words"),
    [
        ("pytorch", {"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.1"}, 1, "GiB allowed;"),
        ("pytorch", {"PYTORCH_ALLOC_CONF": "per_process_memory_fraction:0.5"}, 0, ""),
        ("jax", {"XLA_CLIENT_MEM_FRACTION": "0.1"}, 1, "RESOURCE_EXHAUSTED"),
        (
            "jax",
            {"XLA_CLIENT_MEM_FRACTION": "0.5", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"},
            *(1, "ValueError"),
        ),
    ],
)
def test_frameworks_hold_themselves(
    node: Node, framework: str, env: dict[str, str], code: int, words: str
) -> None:
    args = ("--memory-mib", 9000, "--smact", 0.1, "--work-s", 0.1, "--framework", framework)
    process = train(node, None, *args, **env)
    _, said = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, words in said) == (code, True), said
    if "allowed" in words:
        assert limit_held_by("streams", None, said) == HOLDER[fence.FenceLevel.FRAMEWORK]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n", "job_12"),
        ("0::/system.slice/slurmstepd.scope/job_12/step_0/slurm\n", "job_12"),
        ("0::/system.slice/n1_slurmstepd.scope/sQJ3AB7XK00/step_extern/user\n", "sQJ3AB7XK00"),
        ("3:cpuset:/x\n0::/s/job_1/step_1\n", "job_1"),
    ],
)
def test_the_cgroup_of_a_job(text: str, path: str) -> None:
    found = fence.job_cgroup(text)
    assert found is not None
    assert found.endswith(f"/{path}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/\n",
        "0::/step_0/x\n",
        "0::/user.slice/user-1000.slice\n",
        "4:memory:/slurm/uid_0/job_12/step_0\n",
        "0::/a/../../etc/step_0/user\n",
        "0::/a//b/step_0\n",
        "0::/a/job_1/step_zero/x\n",
    ],
)
def test_no_cgroup_of_a_job(text: str) -> None:
    assert fence.job_cgroup(text) is None


@pytest.mark.parametrize(
    ("driver", "has"),
    [("615.71.04", True), ("1000.1", True), ("570.133.20", False), ("", False), ("x.1", False)],
)
def test_drivers_that_know_limits(driver: str, has: bool) -> None:
    assert fence.has_limits(driver) is has
