# SPDX-License-Identifier: Apache-2.0
"""Each format on real texts: what is counted, and what is seen through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.lexing import parse_shapes
from slurm_coloc.estimate.parsers import parse_summary, parsers
from slurm_coloc.estimate.summary import NOT_KNOWN
from tests.unit.estimate.texts import REPR, TORCHINFO, TORCHSUMMARY, example, keras, shared

# Parameters from the models' papers and libraries, not from the texts.
REAL = [
    ("resnet50_torchinfo.txt", "torchinfo", "cnn", 25_557_032, 32),
    ("resnet50_depth3_torchinfo.txt", "torchinfo", "cnn", 25_557_032, 32),
    ("efficientnet_b0_torchinfo.txt", "torchinfo", "cnn", 5_288_548, 32),
    ("vit_small_torchinfo.txt", "torchinfo", "transformer", 22_050_664, 16),
    ("resnet18_cifar_torchsummary.txt", "torchsummary", "cnn", 11_227_812, 128),
    ("mobilenetv3_small_torchsummary.txt", "torchsummary", "cnn", 2_542_856, None),
    ("mlp_torchsummary.txt", "torchsummary", "mlp", 5_832_714, 512),
    # BERT has 109,514,298 with its decoder tied to the embedding, which the text shows twice.
    ("bert_base_repr.txt", "reprtree", "transformer", 109_514_298 + 30522 * 768, None),
    ("bert_base_counts_repr.txt", "reprtree", "transformer", 109_514_298 + 30522 * 768, None),
    ("gpt2_repr.txt", "reprtree", "transformer", 124_439_808 + 50257 * 768, None),
]


@pytest.mark.parametrize(("name", "form", "family", "parameters", "batch"), REAL)
def test_examples(name: str, form: str, family: str, parameters: int, batch: int | None) -> None:
    found = parse_summary(example(name))
    assert (found.format, found.family, found.batch_in_text) == (form, family, batch)
    assert found.parameters == parameters


def test_every_format_has_a_parser() -> None:
    names = {parser.name for parser in parsers()}
    assert names >= {"torchsummary", "torchinfo", "reprtree", "keras2", "keras3"}


@pytest.mark.parametrize(
    ("name", "parameters", "elements"),
    [
        ("keras2_functional.txt", 2698, 3 * 224 * 224 * 64 + 112 * 112 * 64 + 64 + 10),
        ("keras2_sequential.txt", 407_050, 512 + 512 + 10),
        ("keras3_mlp.txt", 407_050, 512 + 512 + 10),
        ("keras3_functional.txt", 5898, 3 * 64**2 * 32 + 32**3 + 3 * 32 * 32 * 64 + 64 + 64 + 10),
    ],
)
def test_keras(name: str, parameters: int, elements: int) -> None:
    found = parse_summary(keras(name))
    assert found.parameters == parameters
    assert found.activations == elements
    assert found.batch_in_text is None
    assert found.format == name.partition("_")[0]


def test_keras3_nested_counts_once() -> None:
    assert parse_summary(keras("keras3_expanded.txt")).parameters == 5931
    closed = parse_summary(keras("keras3_nested.txt"))
    assert closed.parameters == 5931
    assert closed.collapsed and not closed.hidden_outputs


def test_torchsummary_batch_written_out() -> None:
    text = TORCHSUMMARY.replace("[-1,", "[64,")
    assert parse_summary(text).batch_in_text == 64
    assert parse_summary(text).activations == parse_summary(TORCHSUMMARY).activations


def test_torchsummary_containers_are_not_activations() -> None:
    row = "        BasicBlock-7                   [-1, 10]               0\n"
    text = TORCHSUMMARY.replace("=\nTotal", "=\n" + "Total")
    at = text.index("====", text.index("Linear-6"))
    with_block = text[:at] + row + text[at:]
    assert parse_summary(with_block).activations == parse_summary(TORCHSUMMARY).activations


def test_torchinfo_any_column_order() -> None:
    rows = []
    for line in TORCHINFO.splitlines():
        if line.startswith(("Layer", "Net", "├")):
            cut = [line[:30], line[30:48], line[48:66], line[66:]]
            last = "Trainable" if line.startswith("Layer") else "True"
            line = f"{cut[0]}{cut[3]:<12}{cut[2]:<20}{cut[1]:<20}{last}"
        rows.append(line)
    assert "Trainable" in "\n".join(rows)
    moved = parse_summary("\n".join(rows))
    plain = parse_summary(TORCHINFO)
    assert moved.layers == plain.layers
    assert moved.activations == plain.activations == 2 * 16 * 32 * 32 + 16 + 10


def test_torchinfo_frozen_and_recursive_rows() -> None:
    text = TORCHINFO.replace("448", "(448)").replace(
        "├─Linear: 1-4                 [8, 16]           [8, 10]           170\n",
        "├─Linear: 1-4                 [8, 16]           [8, 10]           170\n"
        "├─Linear: 1-5                 [8, 16]           [8, 10]           (recursive)\n",
    )
    found = parse_summary(text)
    assert found.parameters == 618
    assert found.activations == 2 * 16 * 32 * 32 + 16 + 20


def test_torchinfo_ascii_and_variable_names() -> None:
    text = TORCHINFO.replace("├─Conv2d: 1-1      ", "+ Conv2d (conv): 1-1").replace("├─", "+ ")
    text = text.replace("Layer (type:depth-idx)", "Layer (type (var_name):depth-idx)")
    assert [layer.kind for layer in parse_summary(text).layers][1] == "Conv2d"


def test_torchinfo_depth_limit_knows_what_it_hides() -> None:
    full = parse_summary(example("resnet50_torchinfo.txt"))
    cut = parse_summary(example("resnet50_depth3_torchinfo.txt"))
    assert not full.collapsed
    cut_text = example("resnet50_depth3_torchinfo.txt").splitlines()
    kept = [line for line in cut_text if "3-" not in line]
    shallow = parse_summary("\n".join(kept))
    assert shallow.collapsed and shallow.hidden_outputs > 0
    assert cut.parameters == shallow.parameters


def test_repr_repeats_are_expanded() -> None:
    found = parse_summary(REPR)
    block = 3 * (64 * 64 + 64) + 2 * 64
    assert found.parameters == 2 * 64_000 + 4 * block
    assert found.family == "transformer"
    assert not found.shapes


def test_repr_with_and_without_repeats_agree() -> None:
    short, long = (example(f"bert_base{kind}_repr.txt") for kind in ("", "_counts"))
    assert parse_summary(short).parameters == parse_summary(long).parameters


def test_repr_bare_parameters_come_from_the_counts() -> None:
    text = (
        "Net(\n  (attn): XAttention(\n    (norm): LayerNorm((8,)), 16 params\n  ), 216 params\n"
        "  (fc): Linear(in_features=8, out_features=2, bias=True), 18 params\n), 234 params\n"
    )
    assert parse_summary(text).parameters == 234
    plain = "\n".join(
        line.split(", ")[0] if "params" in line else line for line in text.split("\n")
    )
    plain = plain.replace("(in_features=8", "(in_features=8, out_features=2, bias=True)")
    # Without counts the projections are assumed: never less.
    assert parse_summary(plain).parameters >= 234


def test_repr_convolutions_and_recurrence() -> None:
    text = (
        "Net(\n  (a): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1), bias=False)\n"
        "  (b): BatchNorm2d(8, eps=1e-05, affine=True)\n"
        "  (c): Conv2d(8, 8, kernel_size=(3, 3), groups=8)\n"
        "  (d): LSTM(8, 4, num_layers=2)\n)\n"
    )
    lstm = 4 * 4 * (8 + 4 + 2) + 4 * 4 * (4 + 4 + 2)
    found = parse_summary(text)
    assert found.parameters == 216 + 16 + 80 + lstm
    assert found.family == "recurrent"


def test_two_models_are_added() -> None:
    text = TORCHSUMMARY + "\n" + example("mobilenetv3_small_torchsummary.txt")
    found = parse_summary(text)
    assert found.models == 2
    assert found.parameters == 42_826 + 2_542_856
    assert found.activations == sum(
        parse_summary(part).activations
        for part in (TORCHSUMMARY, example("mobilenetv3_small_torchsummary.txt"))
    )


@pytest.mark.parametrize(
    ("name", "family", "parameters", "batch"),
    [
        ("reprtree_bert_base.txt", "transformer", 130_638_728, None),
        ("reprtree_xlnet_base.txt", "transformer", 117_310_466, None),
        ("torchinfo_unet_bs8.txt", "cnn", 24_439_269, 8),
        ("torchsummary_efficientnet_b0_bs32.txt", "cnn", 5_288_548, 32),
        ("torchsummary_mobilenet_v2_bs64.txt", "cnn", 3_504_872, None),
        ("torchsummary_resnet34_cifar100.txt", "cnn", 21_335_972, None),
    ],
)
def test_files_of_real_users(name: str, family: str, parameters: int, batch: int | None) -> None:
    found = parse_summary(shared(name))
    assert (found.family, found.parameters, found.batch_in_text) == (family, parameters, batch)


def test_unknown_dimensions_have_no_size() -> None:
    text = keras("keras2_sequential.txt").replace("(None, 512) ", "(None, None)")
    assert any(layer.output_elements == NOT_KNOWN for layer in parse_summary(text).layers)


@given(st.lists(st.integers(0, 2**64), min_size=1, max_size=18))
def test_a_shape_in_any_brackets(dims: list[int]) -> None:
    """The short way through a plain list ends where the long way ends."""
    texts = [str(dims), f"({str(dims)[1:-1]})", f"[{dims}]", f" {dims} "]
    found: set[object] = set()
    for text in texts:
        try:
            found.add(parse_shapes(text))
        except SummaryError as err:
            found.add(err.code)
    assert len(found) == 1
    assert found <= {(tuple(dims),), "bad_shape", "number_out_of_range"}


FROZEN = """\
==========================================================================================
Layer (type:depth-idx)                   Output Shape              Param #
==========================================================================================
Net                                      [4, 10]                   32
├─Conv2d: 1-1                            [4, 8, 30, 30]            (224)
├─BatchNorm2d: 1-2                       [4, 8, 30, 30]            (16)
├─Linear: 1-3                            [4, 10]                   62,730
==========================================================================================
Total params: 63,002
Trainable params: {trained}
Non-trainable params: {rest}
==========================================================================================
Input size (MB): 0.05
Forward/backward pass size (MB): 0.66
==========================================================================================
"""


@pytest.mark.parametrize(("trained", "own"), [(62_730, True), (62_762, False)])
def test_frozen_rows(trained: int, own: bool) -> None:
    """Counts in parentheses; a block's own parameters by what the footer leaves for them."""
    found = parse_summary(FROZEN.format(trained=f"{trained:,}", rest=f"{63_002 - trained:,}"))
    assert [row.frozen for row in found.layers] == [own, True, True, False]
    assert found.trainable == trained
    assert found.input_bytes == 50_000
