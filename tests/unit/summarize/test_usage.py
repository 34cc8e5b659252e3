# SPDX-License-Identifier: Apache-2.0
"""`coloc summarize` before anything runs: no torch is needed for what is refused here."""

import importlib.util
import sys

import pytest

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


def test_without_torch_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is installed")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["coloc", "summarize", "timm:resnet50"])
    assert run() == 2
    assert "pip install torch there" in capsys.readouterr().err
