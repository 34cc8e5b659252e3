# SPDX-License-Identifier: Apache-2.0
"""The networks: what they see, what a class means, and that the shipped files answer."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.adapters.onnx import NETS, Onnx
from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.baselines.nets import runner
from slurm_coloc.estimate.baselines.nets.classes import CLASSES, CONTEXT_MIB, NETWORKS, file_name
from slurm_coloc.estimate.baselines.nets.features import (
    LENGTH,
    NAMES,
    TUPLE,
    WIDTH,
    merged,
    tuples,
    vector,
)
from slurm_coloc.estimate.baselines.nets.ranges import RANGES
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary
from tests.unit.estimate.texts import NAMES as EXAMPLES
from tests.unit.estimate.texts import example

RECORDED = Path(__file__).parent / "data" / "nets_answers.json"
ESTIMATORS = tuple(f"gpumemnet-{network}" for network in NETWORKS)


@pytest.fixture(autouse=True)
def no_runner_left() -> Iterator[None]:
    """Each test says what runs its networks."""
    before = runner._runner[0]
    yield
    runner.use(before)


class Answered:
    """A runner that answers as it is told, and notes what it was given."""

    def __init__(self, chances: Sequence[float]) -> None:
        self.chances = list(chances)
        self.given: dict[str, Sequence[object]] = {}

    def __call__(self, name: str, inputs: dict[str, Sequence[object]]) -> list[float]:
        self.given = inputs
        return self.chances


def made(family: str = "cnn", layers: int = 3) -> Summary:
    rows = [
        row
        for _ in range(layers)
        for row in (
            Layer("Conv2d", inputs=((1, 16, 32, 32),), outputs=((1, 16, 32, 32),),
                  parameters=2320, attributes=(("kernel_elements", 9),)),
            Layer("ReLU", outputs=((1, 16, 32, 32),)),
        )
    ]  # fmt: skip
    return Summary("torchinfo", family, 2320 * layers, 2320 * layers, tuple(rows))


def of(summary: Summary, batch: int = 8, optimizer: str = "adam") -> dict[str, float]:
    return dict(zip(NAMES, vector(summary, batch, optimizer), strict=True))


def test_features_by_hand() -> None:
    found = of(made())
    assert len(NAMES) == WIDTH == len(set(NAMES))
    assert math.expm1(found["layers_conv"]) == pytest.approx(3)
    assert math.expm1(found["elements_act_out"]) == pytest.approx(3 * 16 * 32 * 32 * 8)
    assert math.expm1(found["parameters"]) == pytest.approx(3 * 2320)
    # weights, gradients, two moments; a ReLU keeps its output, a convolution's is read by nobody
    kept = 3 * 16 * 32 * 32 + 16 * 32 * 32 + 2 * 2 * 16 * 32 * 32
    assert found["fixed_gb"] == pytest.approx(4 * 4 * 3 * 2320 / 1e9)
    assert found["kept_gb"] == pytest.approx(4 * 8 * kept / 1e9)


def attended(*between: Layer) -> Summary:
    """Queries, keys and values of 12 tokens, 8 wide, ``between``, and the projection."""
    tokens = ((1, 12, 8),)
    rows = (
        Layer("Linear", inputs=tokens, outputs=((1, 12, 24),), parameters=216),
        *between,
        Layer("Linear", inputs=tokens, outputs=tokens, parameters=72),
        Layer("LayerNorm", inputs=tokens, outputs=tokens, parameters=16),
    )
    return Summary("torchinfo", "transformer", 304, 304, rows)


def kept_elements(summary: Summary) -> float:
    """Of one sample, without the weights."""
    return of(summary, batch=1)["kept_gb"] * 1e9 / 4


def test_a_function_between_two_rows_keeps_what_it_read_and_made() -> None:
    # qkv for the product, its result for the projection, that for the norm; the widest and the loss
    fused = 12 * 24 + 12 * 8 + 12 * 8 + 12 * 24 + 3 * 12 * 8
    assert kept_elements(attended()) == pytest.approx(fused)
    score = ((1, 3, 12, 12),)
    scores, mask, wider = 3 * 12 * 12, 3 * 12 * 12 // 4, 3 * 12 * 12 - 12 * 24
    dropout, softmax = (Layer(kind, inputs=score, outputs=score) for kind in ("Dropout", "Softmax"))
    # a dropout over scores shows the softmax before it, unless that has a row
    hidden = kept_elements(attended(dropout))
    assert hidden == pytest.approx(fused + wider + scores + mask + 2 * scores)
    assert kept_elements(attended(softmax, dropout)) == pytest.approx(hidden - scores)


@given(st.integers(1, 2**31 - 1), st.sampled_from(OPTIMIZERS), st.sampled_from(EXAMPLES))
@settings(max_examples=60, deadline=None)
def test_features_are_finite_and_grow_with_the_batch(batch: int, optimizer: str, name: str) -> None:
    summary = parse_summary(example(name))
    one, more = vector(summary, batch, optimizer), vector(summary, 2 * batch, optimizer)
    assert all(math.isfinite(x) for x in one) and len(one) == WIDTH
    sums = [NAMES.index(x) for x in NAMES if x.endswith(("_batch", "_bytes")) or x[:5] == "edge_"]
    assert all(one[i] <= more[i] for i in sums)


def test_tuples_are_bounded_and_keep_the_largest() -> None:
    rows = tuples(made(layers=3 * LENGTH), 8)
    assert len(rows) == LENGTH and {len(row) for row in rows} == {TUPLE}
    assert all(row[0] == 1.0 for row in rows)  # convolutions: they have parameters too
    assert all(row[-1] == 1.0 for row in rows)
    assert tuples(Summary("torchinfo", "cnn", 0, 0, ()), 8)[0][-1] == 1.0


def test_equal_tuples_are_counted_once() -> None:
    rows = tuples(made(layers=5), 8)
    different, counts = merged(rows)
    assert len(different) == 2 and counts == [5.0, 5.0]
    assert sorted(row for row, n in zip(different, counts, strict=True) for _ in range(int(n))) == (
        sorted(rows)
    )


@pytest.mark.parametrize("family", CLASSES)
def test_classes_have_edges(family: str) -> None:
    classes = CLASSES[family]
    for k in range(classes.count - 1):
        top = classes.top(k)
        assert top is not None
        assert classes.of(top - 1) == k and classes.of(top) == k + 1
    assert classes.top(classes.count - 1) is None
    assert classes.of(10**9) == classes.count - 1 and classes.of(0) == 0


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("context", [0, CONTEXT_MIB, CONTEXT_MIB + 300])
def test_the_answer_is_the_upper_edge(name: str, context: int) -> None:
    told = Answered([0.1, 0.7, *[0.2 / 9] * 9])
    runner.use(told)
    answer = estimate(made(), TrainingOptions(8), stack=Stack(context), estimator=name)
    assert answer.memory_mib == answer.upper_mib == 16000 + max(0, context - CONTEXT_MIB)
    assert ("tokens" in told.given) == name.endswith("transformer")


def test_the_open_class_has_no_figure() -> None:
    runner.use(Answered([*[0.0] * 10, 1.0]))
    answer = estimate(made(), TrainingOptions(8), stack=Stack(0), estimator=ESTIMATORS[0])
    assert answer.memory_mib is None and "80000 MiB" in answer.reason


@pytest.mark.parametrize("chances", [[], [1.0], [math.nan] * 11])
def test_nonsense_has_no_figure(chances: list[float]) -> None:
    runner.use(Answered(chances))
    answer = estimate(made(), TrainingOptions(8), stack=Stack(0), estimator=ESTIMATORS[0])
    assert answer.memory_mib is None and answer.reason


def test_what_it_does_not_know_is_told() -> None:
    runner.use(Answered([0.4, 0.3, *[0.3 / 9] * 9]))
    options = TrainingOptions(2**30, precision="amp", gpus=2)
    answer = estimate(made(), options, stack=Stack(0), estimator=ESTIMATORS[0])
    notes = " ".join(answer.notes)
    for word in ("outside what the networks were trained on", "fp32 only", "one GPU", "unsure"):
        assert word in notes


def test_without_a_runner_there_is_no_figure(tmp_path: Path) -> None:
    runner.use(Onnx(tmp_path))
    answer = estimate(made(), TrainingOptions(8), stack=Stack(0), estimator=ESTIMATORS[0])
    assert answer.memory_mib is None and "did not run" in answer.reason


def test_a_damaged_file_is_no_crash(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / file_name("mlp", "cnn")).write_bytes(b"\x08\x07 not a graph")
    runner.use(Onnx(tmp_path))
    answer = estimate(made(), TrainingOptions(8), stack=Stack(0), estimator="gpumemnet-mlp")
    assert answer.memory_mib is None and "did not run" in answer.reason


def test_shipped_weights_are_small() -> None:
    sizes = [path.stat().st_size for path in NETS.glob("*.onnx")]
    assert len(sizes) == len(NETWORKS) * len(CLASSES)
    assert sum(sizes) < 5 * 2**20
    assert set(RANGES) == set(CLASSES)
    assert all(len(side) == WIDTH for pair in RANGES.values() for side in pair)


def answers() -> dict[str, list[int | None]]:
    """Each network at four batch sizes of every example."""
    runner.use(Onnx())
    found = {}
    for name in EXAMPLES:
        summary = parse_summary(example(name))
        for estimator in ESTIMATORS:
            found[f"{name} {estimator}"] = [
                estimate(
                    summary, TrainingOptions(batch), stack=Stack(CONTEXT_MIB), estimator=estimator
                ).memory_mib
                for batch in (4, 32, 128, 1024)
            ]
    return found


def test_shipped_files_answer_as_recorded() -> None:
    """Written by ``python -m tests.unit.estimate.test_nets`` after training."""
    pytest.importorskip("onnxruntime")
    assert answers() == json.loads(RECORDED.read_text(encoding="utf-8"))


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(answers(), indent=1) + "\n", encoding="utf-8")
