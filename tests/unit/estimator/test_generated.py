# SPDX-License-Identifier: Apache-2.0
"""Models that are drawn: what is judged of their texts, and that each family can be made."""

import json
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest

from estimator.generated.judging import BARE, Judged, is_unsure, judged, table, worst
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from tests.unit.estimate.texts import example

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

RECORDED = example("small_cnn_recorded.txt")
CASE = {"family": "cnn", "batch": 64, "precision": "fp32", "optimizer": "adamw"}


def judge(folder: Path, **texts: str) -> list[Judged]:
    for kind, text in {"recorded": RECORDED, **texts}.items():
        (folder / f"small.{kind}").write_text(text)
    case = {**CASE, "formats": list(texts), "shape": [3, 224, 224]}
    (folder / "small.json").write_text(json.dumps(case))
    return judged(folder)


def test_a_text_beside_its_recording(tmp_path: Path) -> None:
    plain = RECORDED.partition("coloc-recording")[0]
    full, broken = judge(tmp_path, full=plain, default="no summary")
    options = TrainingOptions(64, optimizer="adamw")
    both = [
        estimate(parse_summary(RECORDED), options, stack=BARE, estimator=name).memory_mib
        for name in ("traced", "text")
    ]
    assert [full.recorded, full.memory] == both
    assert not full.above and not full.below_floor and full.floor == 0  # 10,538 parameters
    assert broken.memory is None and broken.reason
    lines = table([full, broken], "format").splitlines()
    assert lines[2].startswith("| default | 0 of 1 |") and lines[3].startswith("| full | 1 of 1 |")
    assert worst([broken]) == ""


def test_each_broken_promise_is_named(tmp_path: Path) -> None:
    good = judge(tmp_path, full=RECORDED.partition("coloc-recording")[0])[0]
    assert worst([good]) == ""
    for bad, word in (
        (replace(good, floor=good.recorded + 1), "BELOW THE FLOOR"),
        (replace(good, upper=good.recorded - 1), "above the bound"),
        (replace(good, memory=good.recorded * 2), "sure"),
    ):
        assert word in worst([good, bad]) and len(worst([good, bad]).splitlines()) == 1
    assert worst([replace(good, memory=good.recorded * 2, unsure=True)]) == ""


def test_a_flat_table_says_that_it_is_unsure() -> None:
    options = TrainingOptions(8)
    for name, unsure in (
        ("resnet18_cifar_torchsummary.txt", True),
        ("resnet50_torchinfo.txt", False),
    ):
        answer = estimate(parse_summary(example(name)), options, stack=BARE, estimator="text")
        assert is_unsure(answer) is unsure, (name, answer)


@needs_torch
def test_every_family_is_made_and_recorded() -> None:
    from estimator.generated import cases
    from slurm_coloc.summarize.jobs import Wish
    from slurm_coloc.summarize.making import made

    found = {}
    for case in islice(cases._drawn(3), 40):
        found.setdefault(case.family, case)
    assert set(found) == {name for name, *_ in cases.DRAWERS}
    for case in found.values():
        if case.family in ("cnn", "mlp", "transformer"):
            continue  # estimator/gpumemnet's, tested there
        recording = made(case.job, Wish(batch_size=1, precision=case.precision)).recording
        assert recording.scales or case.family, case.name
        again = next(one for one in islice(cases._drawn(3), 40) if one.name == case.name)
        assert (again.batch, again.optimizer) == (case.batch, case.optimizer)
