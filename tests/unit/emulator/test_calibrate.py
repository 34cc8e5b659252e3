# SPDX-License-Identifier: Apache-2.0
"""``coloc calibrate`` with the stand-in libcuda: the real job, the real NVML client, its file.

The torch of these tests is a stand-in too: it takes memory by libcuda, as much as it is told, so
that what is the context's and what is the allocator's can be told apart exactly.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.cuda.job import CONVOLUTIONS, blas, libraries, one, size
from slurm_coloc.admin.calibrate import as_toml, type_of, workspace
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.flow.estimators.calibrations import Calibration, read_calibration
from tests.harness.answers import as_documented

from .conftest import LIMIT_S, Node

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")

# 150 MiB of libraries; 64 MiB that the allocator holds; a weight gradient takes its input twice.
TORCH = """
import ctypes
from unittest.mock import MagicMock
MIB = 2**20
lib = ctypes.CDLL("libcuda.so.1")
class Tensor:
    def __init__(self, n): self.n = n
    def numel(self): return self.n
    def element_size(self): return 4
def take(mib):
    assert lib.cuMemAlloc_v2(ctypes.byref(ctypes.c_ulonglong()), ctypes.c_size_t(mib * MIB)) == 0
state = {"peak": 0, "now": 0}
def zeros(*shape, **_):
    n = 1
    for side in shape: n *= side
    return Tensor(n)
def convolution(x, weight, *_):
    state["peak"] = 4 * x.n
    return Tensor(x.n)
def backward(y, x, weight, *rest):
    given = rest[-1]
    found = [Tensor(x.n) if given[0] else None, Tensor(weight.n) if given[1] else None]
    beside = 2 * 4 * (x.n + y.n) if given[1] else 0
    kept = found[0] or found[1]
    state["peak"] = -(-4 * kept.n // 512) * 512 + beside
    return found
def mm(x, y):
    state["now"] += 8 * MIB + 4 * x.n
    return Tensor(x.n)
loaded = []
def network(*_):
    if not loaded:
        take(150)
        take(64)
        loaded.append(1)
    return MagicMock()
nn, optim, backends, long = MagicMock(), MagicMock(), MagicMock(), None
nn.Sequential = network
backends.cudnn.version = lambda: 90100
cuda, ops, version = MagicMock(), MagicMock(), MagicMock()
cuda.is_available = lambda: True
cuda.memory_reserved = lambda: 64 * MIB
cuda.memory_allocated = lambda: state["now"]
cuda.max_memory_allocated = lambda: state["now"] + state["peak"]
ops.aten.convolution = convolution
ops.aten.convolution_backward = backward
version.cuda = "12.6"
__version__ = "2.9.0+stand.in"
"""


class Caller:
    """Runs the command line against an emulated node."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.config = tmp_path / "coloc.toml"
        self.stacks = tmp_path / "stacks"
        self.config.write_text(f'[estimate]\nstacks_dir = "{self.stacks}"\n')

    def __call__(
        self, node: Node | None, *argv: str, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        own = {"COLOC_CONFIG": str(self.config), **env}
        if node is not None:
            own |= {**node.env, "LD_LIBRARY_PATH": str(node.lib)}
        return subprocess.run(
            [sys.executable, "-m", "slurm_coloc", *argv],
            capture_output=True,
            text=True,
            env={**os.environ, **own},
            timeout=LIMIT_S,
        )

    def torch(self) -> dict[str, str]:
        """An environment in which torch is the stand-in."""
        folder = self.folder / "torch"
        folder.mkdir()
        (folder / "__init__.py").write_text(TORCH)
        return {"PYTHONPATH": f"{self.folder}:{Path.cwd()}"}


@pytest.fixture
def coloc(tmp_path: Path) -> Caller:
    return Caller(tmp_path)


def test_a_file_that_the_estimate_uses(node: Node, coloc: Caller) -> None:
    done = coloc(node, "calibrate", COLOC_EMU_CONTEXT_MIB="420", **coloc.torch())
    assert done.returncode == 0, done.stderr
    found = read_calibration(coloc.stacks / "a100-40gb.toml")
    assert (found.bare_context_mib, found.context_mib) == (420, 420 + 150)
    assert (found.torch, found.cuda, found.cudnn) == ("2.9.0+stand.in", "12.6", "90100")
    assert found.card == "NVIDIA A100-SXM4-40GB" and found.total_mib == 40960
    assert found.stack == Stack(570, 0.0, 0.0, 2.0, 1.0, blas=8 * 2**20)
    node.until(lambda: node.processes() == [])
    summary = Path("etc/examples/resnet50_torchinfo.txt").resolve()
    shown = coloc(None, "estimate", str(summary))
    assert "context 570 MiB (calibrated" in shown.stdout
    other = coloc(None, "estimate", str(summary), "--gpu", "h100-80gb")
    assert "context 760 MiB (typical; 1900 in the bound)" in other.stdout


def test_without_torch_the_configuration_s_context_stays(node: Node, coloc: Caller) -> None:
    (coloc.folder / "torch.py").write_text("raise ImportError('none here')\n")
    env = {"PYTHONPATH": f"{coloc.folder}:{Path.cwd()}"}
    for bare, context in (("400", 1900), ("2000", 2000)):
        done = coloc(node, "calibrate", "--json", COLOC_EMU_CONTEXT_MIB=bare, **env)
        told = as_documented(["calibrate"], json.loads(done.stdout))
        assert (told["bare_context_mib"], told["context_mib"]) == (int(bare), context)
        assert "none here" in told["how"] and told["torch"] == ""


def test_dry_run_touches_nothing(node: Node, coloc: Caller) -> None:
    done = coloc(node, "calibrate", "--dry-run", "--json", "--device", "1", "--gpu", "mine")
    told = as_documented(["calibrate"], json.loads(done.stdout))
    assert told["uuid"] == node.show()["gpus"][1]["uuid"] and told["gpu"] == "mine"
    assert not coloc.stacks.exists() and node.processes(1) == []


def test_without_a_gpu_and_with_a_lost_one(node: Node, coloc: Caller) -> None:
    for argv in (["calibrate"], ["calibrate", "--dry-run"]):
        done = coloc(None, *argv, LD_LIBRARY_PATH="")
        assert done.returncode == 5 and "NVML" in done.stderr
    uuid = node.show()["gpus"][0]["uuid"]
    node.fault(0, "lost")
    done = coloc(node, "calibrate", "--device", uuid)
    assert done.returncode == 5 and done.stderr.startswith("coloc: ")


def test_no_room_for_a_context(node: Node, coloc: Caller) -> None:
    done = coloc(node, "calibrate", COLOC_EMU_CONTEXT_MIB="99999")
    assert done.returncode == 5 and "out of memory" in done.stderr
    assert not coloc.stacks.exists()


def test_the_idlest_gpu_and_wrong_names(node: Node, coloc: Caller) -> None:
    node.train("--memory-mib", "4000", "--smact", "0.2", "--work-s", "60", CUDA_VISIBLE_DEVICES="0")
    node.working(1)
    done = coloc(node, "calibrate", "--dry-run", "--json")
    assert json.loads(done.stdout)["uuid"] == node.show()["gpus"][1]["uuid"]
    for option in (["--device", "7"], ["--device", "x"], ["--gpu", "../up"]):
        assert coloc(node, "calibrate", *option).returncode == 2
    missing = coloc(node, "calibrate", "--python", "/no/python")
    assert missing.returncode == 5 and "/no/python" in missing.stderr


def test_a_mig_slice_is_its_own_type(make_node: Callable[..., Node], coloc: Caller) -> None:
    node = make_node("mig-mixed")
    slices = [one for gpu in node.show()["gpus"] for one in gpu.get("mig", [])]
    done = coloc(node, "calibrate", "--device", slices[0]["uuid"], "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["visible_mib"] == told["total_mib"] < 40000
    assert read_calibration(Path(told["file"])).stack.visible_mib == told["visible_mib"]


def test_types_of_cards() -> None:
    assert type_of("NVIDIA A100-SXM4-40GB", 40960) == "a100-40gb"
    assert type_of("NVIDIA A100-SXM4-80GB", 81920) == "a100-80gb"
    assert type_of("NVIDIA H100 80GB HBM3", 81559) == "h100-80gb"
    assert type_of("NVIDIA GeForce RTX 3090", 24576) == "rtx3090-24gb"
    assert type_of("Tesla V100-SXM2-16GB", 16384) == "v100-16gb"
    assert type_of("NVIDIA Whatever 5", 1000) == "nvidia-whatever-5"


def test_shares_are_sums_over_sums() -> None:
    found = workspace([[100, 1, 0, 0, 200], [900, 1, 0, 100, 0], [100, 4, 0, 0, 10]])
    assert (found.forward, found.data, found.weight) == (0.0, 0.1, 0.2)
    assert found.grouped == 0.5
    assert workspace([]) == Calibration(context_mib=0).workspace


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    odd = Calibration(context_mib=7, card='A "B" \\ C\n\u00fc', visible_mib=64)
    (tmp_path / "x.toml").write_text(as_toml(odd, "x"), encoding="utf-8")
    assert read_calibration(tmp_path / "x.toml") == odd


class Nothing:
    """Memory of a device that counts none."""

    def start(self) -> int:
        return 0

    def peak(self) -> int:
        return 0


def test_the_job_s_torch_is_torch_s() -> None:
    """The calls are the real library's, on the CPU."""
    torch: Any = pytest.importorskip("torch", reason="torch is not installed")
    assert blas(torch, Nothing(), "cpu") == 0  # type: ignore[arg-type]
    libraries(torch, "cpu")
    small = [(i, o, min(side, 14), *rest) for i, o, side, *rest in CONVOLUTIONS[:2]]
    rows = [one(torch, Nothing(), "cpu", shape) for shape in small]  # type: ignore[arg-type]
    assert [row[2:] for row in rows] == [[0, 0, 0]] * 2
    assert size(torch.zeros(1)) == 512
