# SPDX-License-Identifier: Apache-2.0
"""Rows that a depth limit closed: opened to what stood there, or left closed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.rebuild.given import given as reads
from slurm_coloc.estimate.rebuild.opening import convs, mobile, opened, tokens, windows
from slurm_coloc.estimate.rebuild.opening.rows import Style, conv, norm_act, parameters
from slurm_coloc.estimate.rebuild.scope import Shape
from slurm_coloc.estimate.rebuild.tied import once
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary
from tests.unit.estimate.texts import example

STYLE = Style()
WIDTHS = st.sampled_from([16, 24, 40, 64, 96])


def cut(summary: Summary, depth: int) -> Summary:
    """As torchinfo prints it with a limit: a row at the limit has its rows' parameters, and the
    footer counts the outputs of those below."""
    layers: list[Layer] = []
    hidden = 0
    for row in summary.layers:
        if row.depth <= depth:
            layers.append(replace(row, inputs=(), leaf=row.leaf or row.depth == depth))
            continue
        last = layers[-1]
        layers[-1] = replace(last, parameters=last.parameters + row.parameters)
        if row.leaf and row.parameters:
            hidden += row.output_elements
    return replace(summary, layers=tuple(layers), collapsed=True, hidden_outputs=hidden)


@pytest.mark.parametrize(
    ("name", "depth"),
    [("efficientnet_b0_torchinfo.txt", 3), ("vit_small_torchinfo.txt", 3),
     ("vit_small_torchinfo.txt", 2)],
)  # fmt: skip
def test_a_cut_text_says_what_the_whole_one_says(name: str, depth: int) -> None:
    whole = parse_summary(example(name))
    less = cut(whole, depth)
    assert len(less.layers) < len(whole.layers)
    assert not opened(less).closed
    options, stack = TrainingOptions(batch_size=32), Stack(1000)
    full, found = (estimate(one, options, stack=stack, estimator="text") for one in (whole, less))
    assert full.memory_mib and found.memory_mib
    assert abs(found.memory_mib / full.memory_mib - 1) < 0.02
    assert full.upper_mib and found.upper_mib
    assert abs(found.upper_mib / full.upper_mib - 1) < 0.02  # no wider: everything is known


def test_one_parameter_more_stays_closed_and_gets_the_wide_margin() -> None:
    less = cut(parse_summary(example("vit_small_torchinfo.txt")), 3)
    layers = list(less.layers)
    place = next(i for i, row in enumerate(layers) if row.kind == "Mlp")
    layers[place] = replace(layers[place], parameters=layers[place].parameters + 1)
    other = replace(less, layers=tuple(layers), parameters=less.parameters + 1)
    assert [row.kind for row in opened(other).closed] == ["Mlp"]
    options, stack = TrainingOptions(batch_size=32), Stack(1000)
    known, wide = (
        estimate(one, options, stack=stack, estimator="text").upper_mib for one in (less, other)
    )
    assert known and wide and wide > 1.2 * known


def test_a_guess_that_the_footer_contradicts_is_not_trusted() -> None:
    less = cut(parse_summary(example("vit_small_torchinfo.txt")), 3)
    other = replace(less, hidden_outputs=3 * less.hidden_outputs)
    options, stack = TrainingOptions(batch_size=32), Stack(1000)
    known, wide = (
        estimate(one, options, stack=stack, estimator="text").upper_mib for one in (less, other)
    )
    assert known and wide and wide > 1.2 * known


def _convolutions(nodes: list[Node]) -> list[tuple[int, int]]:
    """Output channels and kernel elements of all convolutions, in order."""
    found = []
    for node in nodes:
        if node.layer.role is Role.CONV:
            kernel = node.layer.attribute("kernel_elements")
            found.append((node.layer.outputs[0][1], kernel))
        found += _convolutions(node.children)
    return found


@given(WIDTHS, WIDTHS, st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([3, 5, 7]), st.booleans())
def test_inverted_residuals(start: int, end: int, factor: int, kernel: int, gate: bool) -> None:
    given, out = (1, start, 32, 32), (1, end, 16, 16)
    mid, few = start * factor, max(1, start // 4)
    count = start * mid + mid * kernel**2 + mid * end + 4 * mid + 2 * end
    count += (2 * mid * few + few + mid) if gate else 0
    inside = mobile.inverted(STYLE, given, out, count)
    assert inside is not None
    assert parameters(inside) == count
    found = _convolutions(inside)
    assert found[0][1] == found[-1][1] == 1
    assert found[-1][0] == end


@given(WIDTHS, WIDTHS, st.sampled_from([1, 3, 5, 7]))
def test_convolutions_with_their_normalisation(start: int, end: int, kernel: int) -> None:
    given, out = (1, start, 32, 32), (1, end, 32, 32)
    rows = [conv(given, out, kernel), *norm_act(STYLE, out)]
    inside = convs.convolved(STYLE, given, out, parameters(rows))
    assert inside is not None
    assert _convolutions(inside) == [(end, kernel**2)]


@given(st.sampled_from([64, 192, 384, 768, 1024]), st.integers(1, 8), st.integers(1, 24))
def test_transformer_layers_and_lists_of_them(width: int, factor: int, times: int) -> None:
    shape: Shape = (1, 100, width)
    one = 4 * width**2 + 4 * width + 2 * factor * width**2 + factor * width + width + 4 * width
    inside = tokens.layer(STYLE, shape, shape, one)
    assert inside is not None and parameters(inside) == one
    same = tokens.layers(STYLE, shape, shape, times * (12 * width**2 + 13 * width))
    assert same is not None and len(same) == times


@given(st.sampled_from([96, 128, 192]), st.sampled_from([7, 8]), st.integers(1, 6))
def test_windows(width: int, side: int, times: int) -> None:
    shape: Shape = (1, 8 * side, 8 * side, width)
    table = (2 * side - 1) ** 2 * (width // 32)
    count = times * (12 * width**2 + 13 * width + table)
    inside = windows.windows(STYLE, shape, shape, count)
    assert inside is not None and len(inside) == times and parameters(inside) == count


@given(st.integers(1, 10**7), st.sampled_from([8, 24, 32, 96]), st.sampled_from([8, 32, 64]))
def test_rules_say_exactly_what_they_were_asked_for_or_nothing(
    count: int, start: int, end: int
) -> None:
    image, out = (1, start, 32, 32), (1, end, 16, 16)
    flat: Shape = (1, 64, start)
    for rule, reading, writing in (
        (mobile.inverted, image, out),
        (mobile.separable, image, out),
        (mobile.edge, image, out),
        (convs.convolved, image, out),
        (convs.bottleneck, image, out),
        (convs.basic, image, out),
        (convs.dense, image, out),
        (tokens.feedforward, flat, flat),
        (tokens.layer, flat, flat),
        (tokens.gated_layer, flat, flat),
    ):
        inside = rule(STYLE, reading, writing, count)
        assert inside is None or parameters(inside) == count


def _net(row: Layer, input_bytes: int) -> Summary:
    top = Layer("Net", 0, outputs=((1, 10),), leaf=False)
    return Summary(
        "torchinfo", "cnn", row.parameters, row.parameters, (top, row), 4, input_bytes=input_bytes
    )


@pytest.mark.parametrize(
    ("out", "count", "side", "channels"),
    [((1, 64, 112, 112), 9408, 224, 3), ((1, 768, 14, 14), 590592, 224, 3),
     ((1, 32, 28, 28), 320, 28, 1), ((1, 64, 224, 224), 1792, 224, 3)],
)  # fmt: skip
def test_what_a_model_reads(out: Shape, count: int, side: int, channels: int) -> None:
    """ResNet's, ViT's, a small net's and VGG's first rows, with the footer's input size."""
    row = Layer("Conv2d", 1, outputs=(out,), parameters=count)
    size = 4 * 4 * channels * side * side
    assert reads(_net(row, size)) == (1, channels, side, side)


def test_a_language_model_reads_numbers_of_words() -> None:
    top = Layer("Net", 0, outputs=((1, 128, 30522),), leaf=False)
    row = Layer("Embedding", 1, outputs=((1, 128, 768),), parameters=30522 * 768)
    text = Summary("torchinfo", "transformer", row.parameters, row.parameters, (top, row), 4)
    assert reads(text) == (1, 128)


def test_a_tied_head_counts_once() -> None:
    shape: Shape = (1, 128, 768)
    embedding = Layer("Embedding", 1, outputs=(shape,), parameters=50257 * 768)
    head = Layer("Linear", 1, (shape,), ((1, 128, 50257),), 50257 * 768)
    for name, count in (("GPT2LMHeadModel", 1), ("LlamaForCausalLM", 2)):
        top = Layer(name, 0, outputs=((1, 128, 50257),), leaf=False)
        whole = 2 * 50257 * 768
        text = Summary("torchinfo", "transformer", whole, whole, (top, embedding, head), 4)
        assert once(text).parameters == count * 50257 * 768
