# SPDX-License-Identifier: Apache-2.0
"""`coloc summarize` before anything runs: no torch is needed for what is refused here."""

import importlib.util
import sys
from pathlib import Path

import pytest

from slurm_coloc.cli import summarize
from slurm_coloc.cli.app import run

CASES = {
    "nothing": [],
    "neither": ["model"],
    "python alone": ["--", "python"],
    "no shape": ["a:b", "--input", "3xx4"],
    "no optimizer": ["a:b", "--optimizer", "sgdm"],
    "no precision": ["a:b", "--precision", "fp64"],
    "no program": ["--", "python9.99", "train.py"],
}


@pytest.mark.parametrize("words", CASES.values(), ids=CASES.keys())
def test_usage(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["coloc", "summarize", *words])
    assert run() == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "script"),
    [
        ("torchrun --standalone --nproc_per_node 2 train.py --lr 1", "train.py --lr 1"),
        ("/opt/v/bin/torchrun train.py", "train.py"),
        ("accelerate launch --num_processes 2 a/train.py", "a/train.py"),
        ("python3 -m torch.distributed.run --nnodes=1 train.py x.py", "train.py x.py"),
        ("torchrun -m package.train", ""),
        ("python train.py torchrun", ""),
        ("python -m package.train", ""),
    ],
)
def test_a_launcher_is_left_out(words: str, script: str) -> None:
    assert summarize._launched(words.split()) == script.split()


def test_what_a_launcher_tells_its_script() -> None:
    for words in ("accelerate launch --mixed_precision bf16 a.py", "a --mixed_precision=bf16 b"):
        told = summarize._environment(words.split())
        assert (told["ACCELERATE_MIXED_PRECISION"], told["WORLD_SIZE"]) == ("bf16", "1")
    assert "ACCELERATE_MIXED_PRECISION" not in summarize._environment(["torchrun", "a.py"])


def test_an_error_of_several_lines_is_shown_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in somebody's text makes no line of its own."""
    error = {"message": "ValueError: a\nb", "where": "x.py:3", "hint": "c"}
    monkeypatch.setattr(summarize, "_python", lambda _: "python")
    monkeypatch.setattr(summarize, "_run", lambda *_: {"error": error})
    monkeypatch.setattr(sys, "argv", ["coloc", "summarize", "a:b"])
    assert run() == 7
    assert capsys.readouterr().err == "coloc: ValueError: a\\nb\n  in x.py:3\n  try: c\n"


def test_without_torch_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is installed")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["coloc", "summarize", "timm:resnet50"])
    assert run() == 2
    assert "pip install torch there" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["none/model.txt", ".", "file/model.txt"])
def test_a_file_that_cannot_be_written_is_told_before_anything_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()

    def python(command: list[str]) -> str:
        pytest.fail("the user's script would run")

    monkeypatch.setattr(summarize, "_python", python)
    monkeypatch.setattr(sys, "argv", ["coloc", "summarize", "a:b", "-o", str(tmp_path / name)])
    assert run() == 2
    assert str(tmp_path / name) in capsys.readouterr().err


def test_a_disk_that_is_full_in_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has cost minutes: it goes to stdout in place of the file."""
    monkeypatch.setattr(summarize, "_python", lambda command: sys.executable)
    monkeypatch.setattr(summarize, "_run", lambda *_: {"text": "a table\n"})
    monkeypatch.setattr(sys, "argv", ["coloc", "summarize", "a:b", "-o", "/dev/full"])
    assert run() == 2
    told = capsys.readouterr()
    assert told.err == "coloc: /dev/full: No space left on device\n"
    assert told.out == "a table\n"
