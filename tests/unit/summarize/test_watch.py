# SPDX-License-Identifier: Apache-2.0
"""What a training says after its first step, and the callbacks that call it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: the callbacks need it")

from slurm_coloc.estimate.block.text import block  # noqa: E402
from slurm_coloc.summarize.watch import Watch  # noqa: E402
from tests.unit.estimate.recordings import small  # noqa: E402


@pytest.fixture
def summary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RANK", "COLOC_SHARDS", "COLOC_SUMMARIZE"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "model.txt"
    path.write_text(block(small()))
    return path


def test_once_after_the_first_step(summary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOC_SHARDS", "8")
    said: list[str] = []
    watch = Watch(summary, batch_size=8, say=said.append)
    watch.step()
    watch.step()
    assert len(said) == 3
    assert "traced" in said[0] and "8 shards" in said[1]
    assert "in use" in said[2]


def test_on_the_cpu_it_says_so(summary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "without CUDA" in Watch(summary).lines()[2]
    assert "none by slurm-coloc" in Watch(summary).lines()[1]


def test_with_cuda_it_says_what_is_taken(summary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 300 * 2**20)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 400 * 2**20)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 200 * 2**20)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 2**35))
    line = Watch(summary).lines()[2]
    assert all(part in line for part in ("300 MiB", "400 at most", "200 in tensors", "1024 are"))


def test_nothing_ends_a_training(tmp_path: Path) -> None:
    assert "no such file" in Watch(tmp_path / "none.txt").lines()[0]
    assert "none" in Watch().lines()[0]


def test_other_ranks_and_coloc_summarize_itself_are_silent(
    summary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for name, value in (("RANK", "1"), ("COLOC_SUMMARIZE", "1")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            Watch(summary, say=said.append).step()
    assert said == []


def test_callback_of_transformers(summary: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from slurm_coloc.summarize.hf import Coloc

    said: list[str] = []
    callback = Coloc(summary, say=said.append)
    arguments = SimpleNamespace(per_device_train_batch_size=64)
    callback.on_step_end(arguments, None, None)
    callback.on_step_end(arguments, None, None)
    assert len(said) == 3 and "traced" in said[0]


def test_callback_of_lightning(summary: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    from slurm_coloc.summarize.lightning import Coloc

    said: list[str] = []
    callback = Coloc(summary, say=said.append)
    batch = (torch.zeros(64, 3), torch.zeros(64))
    for steps in (0, 1, 2):  # the first batch of accumulated gradients is no step
        trainer = SimpleNamespace(global_step=steps, is_global_zero=True)
        callback.on_train_batch_end(trainer, None, None, batch, steps)
        assert len(said) == (3 if steps else 0)
