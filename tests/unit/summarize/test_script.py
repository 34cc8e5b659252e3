# SPDX-License-Identifier: Apache-2.0
"""`coloc summarize`, as a user calls it: scripts, targets, files, errors, exit codes."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_coloc.estimate.replay.stack import Stack

pytest.importorskip("torch", reason="torch is not installed: coloc summarize needs it")

from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.block.traced import Traced
from slurm_coloc.estimate.parsers import parse_summary
from tests.harness.answers import as_documented

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(__file__).parent / "scripts"


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def recording(self) -> Traced:
        assert self.code == 0, self.err
        found = parse_summary(self.out).recording
        assert found is not None
        return found


def coloc(folder: Path, *words: str) -> Done:
    """Run it in ``folder``, as an own process."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "slurm_coloc", "summarize", *words],
        cwd=folder,
        env=dict(os.environ) | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def script(folder: Path, name: str, *words: str) -> Done:
    return coloc(folder, "--", sys.executable, str(SCRIPTS / name), *words)


def mib(found: Traced, text: str, batch: int) -> int:
    options = TrainingOptions(
        batch, optimizer=found.optimizer or "adamw", precision=found.precision
    )
    answer = estimate(parse_summary(text), options, stack=Stack(0), estimator="traced")
    assert answer.memory_mib is not None, answer.reason
    return answer.memory_mib


def test_a_script_is_as_its_model(tmp_path: Path) -> None:
    """And it is stopped before it writes."""
    done = script(tmp_path, "train.py")
    found = done.recording
    assert (found.batch, found.optimizer, found.precision) == (8, "adamw", "fp32")
    assert found.scales and found.accumulate == 1 and found.family == "cnn"
    assert "loss" in done.err and "loss" not in done.out
    assert list(tmp_path.iterdir()) == []
    alone = coloc(tmp_path, "tests.unit.summarize.models:example").recording
    assert found.parameters == alone.parameters and found.constants == alone.constants
    for batch in (8, 512):
        assert abs(mib(found, done.out, batch) - mib(alone, done.out, batch)) <= 2


def test_what_a_script_shows(tmp_path: Path) -> None:
    done = script(tmp_path, "train.py", "--amp", "--batch", "4", "--accumulate", "3")
    found = done.recording
    assert (found.batch, found.precision, found.accumulate) == (4, "amp", 3)
    assert found.scales
    plain = script(tmp_path, "train.py", "--batch", "4").recording
    # One batch of the three, not all of them.
    assert len(found.gradients) == len(plain.gradients)
    assert len(found.events) < 2 * len(plain.events)


def test_two_models_are_one_recording(tmp_path: Path) -> None:
    done = script(tmp_path, "two_models.py")
    found = done.recording
    assert found.models == 2 and parse_summary(done.out).models == 2
    made = 16 * 256 + 256 + 256 * 784 + 784
    judge = 784 * 256 + 256 + 256 + 1
    assert found.elements == made + judge
    assert found.trainable == made + judge - (16 * 256 + 256)
    assert found.scales and found.batch == 32


def test_a_script_without_a_loader(tmp_path: Path) -> None:
    done = script(tmp_path, "no_loader.py")
    assert not done.recording.scales and done.recording.batch == 8
    assert "no DataLoader: the batch size is taken to be 8" in done.err


def test_a_script_that_does_not_train(tmp_path: Path) -> None:
    done = script(tmp_path, "no_step.py")
    assert done.code == 7 and done.out == ""
    assert "MODULE:CALLABLE" in done.err


def test_what_failed_where_and_what_to_try(tmp_path: Path) -> None:
    done = script(tmp_path, "train.py", "--fail")
    assert done.code == 7
    assert "train.py:" in done.err and "output.view(-1, 7)" in done.err and "try:" in done.err


def test_values_bring_it_to_the_cpu(tmp_path: Path) -> None:
    done = script(tmp_path, "values.py")
    assert "once more on the CPU" in done.err
    assert done.recording.batch == 16
    assert "Rprop is counted as adam" in done.err


def test_the_batch_can_be_another_one(tmp_path: Path) -> None:
    words = ["--batch-size", "24", "--", sys.executable, str(SCRIPTS / "train.py")]
    assert coloc(tmp_path, *words).recording.batch == 24


def test_targets_and_files(tmp_path: Path) -> None:
    target = "tests.unit.summarize.models:small"
    done = coloc(tmp_path, target)
    assert done.code == 7 and "--input" in done.err
    path = tmp_path / "model.txt"
    words = [target, "--input", "3x32x32", "--batch-size", "4", "--optimizer", "sgd"]
    done = coloc(tmp_path, *words, "-o", str(path))
    assert (done.code, done.out) == (0, "")
    found = parse_summary(path.read_text()).recording
    assert found is not None and (found.batch, found.optimizer) == (4, "sgd")
    done = coloc(tmp_path, *words, "--json")
    answer = as_documented(["summarize"], json.loads(done.out))
    assert answer["schema"] == 1 and answer["recording"]["batch"] == 4
    assert answer["text"] == path.read_text()


def test_a_model_that_fails(tmp_path: Path) -> None:
    done = coloc(tmp_path, "tests.unit.summarize.models:broken")
    assert done.code == 7 and "made to fail" in done.err and "models.py:" in done.err
    done = coloc(tmp_path, "tests.unit.summarize.models:misfit")
    assert done.code == 7 and "Conv2d" in done.err and "--input" in done.err


def test_as_torchrun_would_start_it(tmp_path: Path) -> None:
    """As the first process of one, without a GPU and without NCCL."""
    done = coloc(tmp_path, "--", "torchrun", "--nproc_per_node=2", str(SCRIPTS / "ranks.py"))
    found = done.recording
    assert (found.batch, found.optimizer, found.scales) == (8, "adamw", True)
    alone = coloc(tmp_path, "tests.unit.summarize.models:example").recording
    assert found.parameters == alone.parameters


def test_a_step_that_hangs_on_the_data(tmp_path: Path) -> None:
    words = ("--real", "--", sys.executable, str(SCRIPTS / "lengths.py"))
    done = coloc(tmp_path, *words)
    assert done.code == 7
    assert "few say nothing of all" in done.err and "sbatch --coloc=auto" in done.err
