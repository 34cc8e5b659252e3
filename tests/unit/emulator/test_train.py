# SPDX-License-Identifier: Apache-2.0
"""emu-train: footprint, slowdown, the ways to end."""

import re
import signal
from collections.abc import Callable

import pytest

from .conftest import Node

K, C = 1.1, 1.05


def mps_speeds(activities: list[float]) -> list[float]:
    """The model, written a second time: slurm_coloc/lab/emulator/README.md."""
    total = sum(activities)
    v = [1 / (1 + K * min(1.0, total - s) ** 3) for s in activities]
    work = sum(s * x for s, x in zip(activities, v, strict=True))
    return [x * C / work for x in v] if work > C else v


@pytest.mark.parametrize(
    "activities", [[0.5], [0.4, 0.3], [0.9, 0.9], [0.95, 0.2], [0.25] * 7, [0.6, 0.5, 0.4]]
)
def test_speeds_follow_the_model(node: Node, activities: list[float]) -> None:
    for smact in activities:
        node.train("--memory-mib", 2000, "--smact", smact, "--work-s", 500)
    entries = node.working(len(activities))
    got = sorted((p["smact"], p["speed"]) for p in entries)
    want = sorted(zip(activities, mps_speeds(activities), strict=True))
    for (_, speed), (_, expected) in zip(got, want, strict=True):
        assert speed == pytest.approx(expected, abs=1e-4)


def test_two_trainings_really_take_longer(node: Node) -> None:
    pair = [node.train("--memory-mib", 2000, "--smact", 0.9, "--work-s", 20, "--time-scale", 20)
            for _ in range(2)]  # fmt: skip
    speed = mps_speeds([0.9, 0.9])[0]
    for process in pair:
        out, _ = process.communicate(timeout=20)
        assert process.returncode == 0
        done = dict(re.findall(r"(\w+)=(\S+)", out.splitlines()[-1]))
        assert out.splitlines()[-1].startswith("emu-train: done ")
        assert done["work_s"] == "20.00"
        assert done["peak_mib"] == "2000"
        assert done["neighbours_max"] == "1"
        assert done["gpu"] == node.show()["gpus"][0]["uuid"]
        # The model says 36 s for full overlap; a loaded machine may start one late.
        assert speed == pytest.approx(0.555, abs=0.001)
        assert float(done["wall_s"]) > 20 * 1.2
    assert node.processes() == []


def test_streams_and_auto_sharing(make_node: Callable[..., Node]) -> None:
    for sharing in ("streams", "auto"):  # no MPS daemon here: auto means streams
        node = make_node("1xa100-40gb", "--sharing", sharing)
        for _ in range(2):
            node.train("--memory-mib", 1000, "--smact", 0.75, "--work-s", 100)
        assert [p["speed"] for p in node.working(2)] == pytest.approx([1 / 1.8] * 2, abs=1e-3)


def test_the_newcomer_dies_of_a_full_card(node: Node) -> None:
    node.train("--memory-mib", 30000, "--smact", 0.5, "--work-s", 100)
    node.working(1)
    newcomer = node.train("--memory-mib", 15000, "--smact", 0.5, "--work-s", 1)
    _, err = newcomer.communicate(timeout=20)
    assert newcomer.returncode == 1
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in err
    assert f"Process {node.started[0].pid} has 29.30 GiB memory in use" in err
    assert len(node.processes()) == 1  # the first one goes on


OOM_TEXTS = {
    "pytorch": r"^torch\.OutOfMemoryError: CUDA out of memory\. Tried to allocate \S+ \SiB\. GPU 0"
    r" has a total capacity of 39\.59 GiB of which \S+ \w+ is free\. Including non-PyTorch memory,"
    r" this process has \S+ GiB memory in use\. Of the allocated memory",
    "pytorch-old": r"^RuntimeError: CUDA out of memory\. Tried to allocate \S+ GiB \(GPU 0; 39\.59"
    r" GiB total capacity; \S+ GiB already allocated; \S+ \SiB free; \S+ GiB reserved in total",
    "tensorflow": r"ResourceExhaustedError: [^$]*OOM when allocating tensor with shape\[[\d,]+\]"
    r" and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
    "jax": r"^jaxlib\.xla_extension\.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while"
    r" trying to allocate \d+ bytes\.$",
    "cupy": r"^cupy\.cuda\.memory\.OutOfMemoryError: Out of memory allocating [\d,]+ bytes"
    r" \(allocated so far: [\d,]+ bytes\)\.$",
    "cublas": r"CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate\(handle\)`$",
    "cudnn": r"cuDNN error: CUDNN_STATUS_ALLOC_FAILED$",
    "cuda": r"^RuntimeError: CUDA error: out of memory$",
    "nccl": r"^ncclUnhandledCudaError: Call to CUDA function failed\.\nLast error:\n"
    r"Cuda failure 2 'out of memory'$",
}


@pytest.mark.parametrize("framework", sorted(OOM_TEXTS))
def test_each_frameworks_text(node: Node, framework: str) -> None:
    done = node.tool("emu-train", "--memory-mib", 60000, "--smact", 0.5, "--work-s", 1,
                     "--ramp-s", 0, "--framework", framework, check=False)  # fmt: skip
    assert done.returncode == 1
    assert "Traceback (most recent call last):" in done.stderr
    assert re.search(OOM_TEXTS[framework], done.stderr, re.MULTILINE), done.stderr


def test_a_caught_oom_goes_on_with_half(node: Node) -> None:
    done = node.tool("emu-train", "--memory-mib", 60000, "--smact", 0.5, "--work-s", 0.1,
                     "--ramp-s", 0, "--catch-oom")  # fmt: skip
    assert "CUDA out of memory" in done.stderr
    assert "emu-train: done work_s=0.10" in done.stdout


@pytest.mark.parametrize(
    ("limit", "dies"),
    [("0=6G", True), ("0=6144M", True), ("0=9G", False), ("1=6G", False), ("GPU-x=6G", False)],
)
def test_the_fence_counts_per_process_by_index(node: Node, limit: str, dies: bool) -> None:
    done = node.tool("emu-train", "--memory-mib", 7000, "--smact", 0.5, "--work-s", 0.05,
                     "--ramp-s", 0, check=False,
                     CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=limit)  # fmt: skip
    assert done.returncode == (1 if dies else 0)
    assert ("out of memory" in done.stderr) is dies


def test_sigterm_frees_and_a_killed_one_is_reaped(node: Node) -> None:
    polite, killed = (
        node.train("--memory-mib", 3000, "--smact", 0.2, "--work-s", 100) for _ in range(2)
    )
    node.working(2)
    polite.send_signal(signal.SIGTERM)
    assert polite.wait(timeout=20) == 143
    killed.kill()
    killed.wait(timeout=20)
    node.until(lambda: node.processes() == [])
    shown = node.show()
    assert shown["reaped"] == 1
    assert shown["gpus"][0]["used_mib"] == 0


def test_a_zombie_holds_no_gpu_memory(node: Node) -> None:
    unreaped = node.train("--memory-mib", 30000, "--smact", 0.2, "--work-s", 100)
    node.working(1)
    unreaped.kill()  # and nobody waits for it yet
    node.until(lambda: node.processes() == [])


def test_the_lock_of_a_killed_holder_is_free(node: Node) -> None:
    for _ in range(5):
        batch = [node.train("--memory-mib", 100, "--smact", 0.1, "--work-s", 50)
                 for _ in range(4)]  # fmt: skip
        node.until(lambda: len(node.processes()) >= 1)
        for process in batch:
            process.kill()
    node.until(lambda: node.processes() == [])


def test_processes_of_one_job_take_twice_and_end_together(node: Node) -> None:
    job = node.train("--memory-mib", 4000, "--smact", 0.3, "--work-s", 100, "--processes", 2)
    node.working(1, gpu=0)
    node.working(1, gpu=1)
    victim = node.processes(1)[0]["pid"]
    import os

    os.kill(victim, signal.SIGKILL)
    assert job.wait(timeout=20) == 137
    node.until(lambda: node.show()["gpus"][0]["used_mib"] == 0)

    job = node.train("--memory-mib", 4000, "--smact", 0.3, "--work-s", 0.1, "--processes", 2,
                     CUDA_VISIBLE_DEVICES="0")  # fmt: skip
    node.until(lambda: job.poll() == 0)


def test_one_process_on_two_gpus(node: Node) -> None:
    node.train("--memory-mib", 4000, "--smact", 0.3, "--work-s", 100, "--gpus", 2)
    assert node.working(1, gpu=0)[0]["pid"] == node.working(1, gpu=1)[0]["pid"]


def test_visible_devices_by_index_and_uuid(node: Node) -> None:
    uuid = node.show()["gpus"][1]["uuid"]
    for visible in ("1", uuid, f"{uuid},0"):
        done = node.tool("emu-train", "--memory-mib", 100, "--smact", 0.1, "--work-s", 0,
                         "--ramp-s", 0, CUDA_VISIBLE_DEVICES=visible)  # fmt: skip
        assert f"gpu={uuid}" in done.stdout
    for visible in ("", "7", "NoDevFiles"):
        done = node.tool("emu-train", "--memory-mib", 100, "--smact", 0.1, "--work-s", 0,
                         check=False, CUDA_VISIBLE_DEVICES=visible)  # fmt: skip
        assert done.returncode == 1
        assert "No CUDA GPUs are available" in done.stderr


def test_exit_code_and_usage(node: Node) -> None:
    quick = ("--memory-mib", 100, "--smact", 0.1, "--work-s", 0, "--ramp-s", 0)
    assert node.tool("emu-train", *quick, "--exit-code", 7, check=False).returncode == 7
    assert node.tool("emu-train", "--smact", 2, check=False).returncode == 2


@pytest.mark.parametrize("fault", ["lost", "mps-fault"])
def test_a_fault_of_the_gpu_ends_the_training(node: Node, fault: str) -> None:
    process = node.train("--memory-mib", 100, "--smact", 0.1, "--work-s", 100)
    node.working(1)
    node.fault(0, fault)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "RuntimeError: CUDA error: un" in err
    assert "out of memory" not in err


def test_the_ledger_is_found_by_node_name(node: Node, emulator: object) -> None:
    """In a job under --export=NONE only SLURMD_NODENAME tells the node."""
    import shutil
    import subprocess

    home = node.folder / "lab"
    (home / "nodes" / "n1").mkdir(parents=True)
    shutil.copytree(node.bin, home / "bin")
    shutil.copy(node.ledger, home / "nodes" / "n1" / "ledger")
    args = [str(home / "bin" / "emu-train"), "--memory-mib", "10", "--smact", "0.1",
            "--work-s", "0", "--ramp-s", "0"]  # fmt: skip
    assert subprocess.run(args, env={"SLURMD_NODENAME": "n1"}, capture_output=True).returncode == 0
    assert subprocess.run(args, env={}, capture_output=True).returncode == 9
