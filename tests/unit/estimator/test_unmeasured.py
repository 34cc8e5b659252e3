# SPDX-License-Identifier: Apache-2.0
"""estimator/evaluate/elsewhere: which models are from elsewhere, and what is judged of them."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from estimator.evaluate import unmeasured
from estimator.evaluate.architectures import table
from tests.unit.estimate.texts import example

FILES = {"resnet": ["resnet18", "resnet50"], "vgg": [f"vgg{n}" for n in (11, 13, 16, 19, 21)]}


def test_only_files_without_a_measured_model(monkeypatch: pytest.MonkeyPatch) -> None:
    timm = SimpleNamespace(
        list_modules=lambda: list(FILES), list_models=lambda module: FILES[module]
    )
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setattr(unmeasured, "prepared", lambda: None)
    assert unmeasured.models(["resnet18"]) == ["vgg11", "vgg13", "vgg16", "vgg19"]
    assert unmeasured.models(["resnet18", "vgg19"]) == []


def test_judged_at_each_batch_size(tmp_path: Path) -> None:
    text = example("small_cnn_recorded.txt")
    (tmp_path / "one.recorded").write_text(text)
    (tmp_path / "one.full").write_text(text)
    found = unmeasured.judged(["one", "without a recording"], tmp_path)
    assert [case.name for case in found] == [f"one at {batch}" for batch in unmeasured.BATCHES]
    assert all(case.texts["default"] is None and case.texts["full"] for case in found)
    assert "| full | 3 of 3 |" in table(found)
