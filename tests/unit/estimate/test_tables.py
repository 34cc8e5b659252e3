# SPDX-License-Identifier: Apache-2.0
"""Tables that hide what counts: no shapes, blocks under the name of their last layer, another
input than the options say. Each gave a figure far too low, or one of another training."""

import pytest

from slurm_coloc.estimate.api import Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.stack import Stack
from tests.unit.estimate.texts import example

RULE = "=" * 110
WIDE, NARROW = "[8, 64, 128, 128]", "[8, 3, 128, 128]"


def asked(text: str, **options: object) -> Estimate:
    given = TrainingOptions(8, **options)  # type: ignore[arg-type]
    return estimate(parse_summary(text), given, stack=Stack(0), estimator="text")


def table(rows: list[tuple[str, str, int]], total: int, outputs: bool = True) -> str:
    """A torchinfo table of rows: name, output, parameters."""
    columns = ["Layer (type:depth-idx)", *(["Output Shape"] if outputs else []), "Param #"]
    lines = [RULE, "".join(f"{one:<40}" for one in columns), RULE]
    for name, output, count in rows:
        cells = [name, *([output] if outputs else []), f"{count:,}" if count else "--"]
        lines.append("".join(f"{one:<40}" for one in cells))
    lines += [RULE, f"Total params: {total:,}", f"Trainable params: {total:,}"]
    return "\n".join([*lines, "Non-trainable params: 0", RULE])


def convolutions(kind: str, opened: bool) -> str:
    """Six blocks of a convolution, a normalisation and an activation."""
    rows: list[tuple[str, str, int]] = [("Net", "[8, 10]", 0)]
    for place in range(6):
        weights = (3 if place == 0 else 64) * 64 * 9
        rows.append((f"├─{kind}: 1-{place + 1}", WIDE, 0 if opened else weights + 128))
        if opened:
            rows += [
                (f"│    └─Conv2d: 2-{3 * place + 1}", WIDE, weights),
                (f"│    └─BatchNorm2d: 2-{3 * place + 2}", WIDE, 128),
                (f"│    └─ReLU: 2-{3 * place + 3}", WIDE, 0),
            ]
    rows += [("├─AdaptiveAvgPool2d: 1-7", "[8, 64, 1, 1]", 0), ("├─Flatten: 1-8", "[8, 64]", 0)]
    rows.append(("├─Linear: 1-9", "[8, 10]", 650))
    return table(rows, sum(count for _, _, count in rows))


@pytest.mark.parametrize(
    "kind", ["ConvBNReLU", "Conv2dReLU", "ConvBnSiLU", "BasicConv2d", "DoubleConv2d"]
)
def test_a_block_under_the_name_of_its_activation_is_closed(kind: str) -> None:
    assert asked(convolutions(kind, opened=True)).memory_mib
    closed = asked(convolutions(kind, opened=False))
    assert closed.memory_mib is None and "full depth" in closed.reason


def test_an_activation_with_weights_of_its_own_is_one() -> None:
    rows = [
        ("Net", "[8, 10]", 0),
        ("├─Linear: 1-1", "[8, 10]", 330),
        ("├─PReLU: 1-2", "[8, 10]", 10),
    ]
    assert asked(table(rows, 340)).memory_mib


TOKENS = [
    ("Bert", "[8, 16, 64]", 0),
    ("├─Embedding: 1-1", "[8, 16, 64]", 64_000),
    ("├─SelfAttention: 1-2", "[8, 16, 64]", 0),
    ("│    └─Linear: 2-1", "[8, 16, 64]", 4_160),
    ("│    └─LayerNorm: 2-2", "[8, 16, 64]", 128),
]


@pytest.mark.parametrize("options", [{}, {"seq_len": 16}, {"shape": (16,)}])
def test_a_table_without_shapes_has_no_activations(options: dict[str, object]) -> None:
    """torchinfo prints the parameters alone where it was given no input."""
    answer = asked(table(TOKENS, 68_288, outputs=False), **options)
    assert answer.memory_mib is None and "input_size" in answer.reason


def test_an_input_of_another_size_is_another_training() -> None:
    text = example("resnet50_torchinfo.txt")
    for shape in ((3, 224, 224), (224, 224, 3), None):
        assert asked(text, shape=shape).memory_mib
    other = asked(text, shape=(3, 512, 512))
    assert other.memory_mib is None and "3x512x512" in other.reason and "3x224x224" in other.reason
    # What is given of tokens says nothing of an image network.
    assert asked(text, seq_len=77).memory_mib


def test_a_length_that_the_table_does_not_show() -> None:
    rows = [("Net", "[8, 35, 10]", 0), ("├─LSTM: 1-1", "[8, 35, 64]", 33_280)]
    rows.append(("├─Linear: 1-2", "[8, 35, 10]", 650))
    assert asked(table(rows, 33_930), seq_len=35).memory_mib
    other = asked(table(rows, 33_930), seq_len=512)
    assert other.memory_mib is None and "512" in other.reason
