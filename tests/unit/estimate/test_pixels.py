# SPDX-License-Identifier: Apache-2.0
"""Shapes that follow from an input's shape, for print(model) of convolutional networks."""

import pytest

from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.lexing import Shape
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.pixels.walk import with_pixels
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.request import shape_of
from slurm_coloc.estimate.summary import Summary
from tests.unit.estimate.texts import DATA, example

RESNET = (DATA / "resnet50_repr.txt").read_text(encoding="utf-8")


def printed(*rows: str, kind: str = "Net") -> Summary:
    """print(model) of these rows, indented as PyTorch does."""
    lines, depth = [f"{kind}("], 1
    for line in "\n".join(rows).splitlines():
        depth -= line.startswith(")")
        lines.append("  " * depth + line)
        depth += line.endswith("(")
    return parse_summary("\n".join([*lines, ")", ""]))


def conv(reads: int, makes: int, kernel: int = 3, stride: int = 1, name: str = "conv") -> str:
    pad = kernel // 2
    return (
        f"({name}): Conv2d({reads}, {makes}, kernel_size=({kernel}, {kernel}),"
        f" stride=({stride}, {stride}), padding=({pad}, {pad}), bias=False)"
    )


def norm(width: int) -> str:
    return f"(bn): BatchNorm2d({width}, eps=1e-05, momentum=0.1, affine=True)"


def block(kind: str, *rows: str) -> str:
    return "\n".join([f"(block): {kind}(", *rows, ")"])


def shapes(summary: Summary, *shape: int) -> list[Shape]:
    """Of what each convolution and matrix makes, without the sample's leading 1."""
    made = with_pixels(summary, shape or (3, 32, 32))
    return [row.outputs[0][1:] for row in made.layers if row.kind in ("Conv2d", "Linear")]


def why_not(summary: Summary) -> str:
    with pytest.raises(SummaryError) as caught:
        with_pixels(summary, (3, 32, 32))
    return caught.value.message


def test_the_rows_of_a_real_text_are_those_of_its_table() -> None:
    """ResNet-50 as print(model) and as torchinfo's table: the same figure within 1 %."""
    options = TrainingOptions(32, optimizer="sgd", shape=(3, 224, 224))
    of_print, of_table = (
        estimate(parse_summary(text), options, stack=Stack(0)).memory_mib or 0
        for text in (RESNET, example("resnet50_torchinfo.txt"))
    )
    assert of_print == pytest.approx(of_table, rel=0.01) and of_print > 3000


def test_without_the_input_the_answer_names_the_option() -> None:
    found = estimate(parse_summary(RESNET), TrainingOptions(32), stack=Stack(0))
    assert found.memory_mib is None and "--coloc-input=3x224x224" in found.reason


def test_windows_strides_and_paddings() -> None:
    rows = (
        conv(3, 8, 7, 2),
        "(pool): MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)",
        "(c1): Conv2d(8, 9, kernel_size=(1, 7), stride=(1, 1), padding=(0, 3))",
        "(c2): Conv2dSame(9, 10, kernel_size=(3, 3), stride=(2, 2))",
        "(c3): Conv2d(9, 10, kernel_size=(3, 3), stride=(2, 2), padding=same)",
        "(up): ConvTranspose2d(10, 6, kernel_size=(2, 2), stride=(2, 2))",
        "(s): Upsample(scale_factor=2.0, mode='nearest')",
        "(last): Conv2d(6, 4, kernel_size=(3, 3), stride=(1, 1), dilation=(2, 2))",
    )
    made = with_pixels(printed(*rows[:4], *rows[5:]), (3, 64, 64)).layers
    assert [row.outputs[0][1:] for row in made[1:]] == [
        (8, 32, 32), (8, 16, 16), (9, 16, 16), (10, 8, 8), (6, 16, 16), (6, 32, 32), (4, 28, 28)
    ]  # fmt: skip
    assert shapes(printed(rows[0], rows[1], rows[2], rows[4]), 3, 64, 64)[-1] == (10, 8, 8)


def test_a_shortcut_reads_the_blocks_input_wherever_it_is_printed() -> None:
    main = (conv(8, 8, 3, 2, "conv1"), norm(8), conv(8, 8, 3, 1, "conv2"), norm(8))
    around = f"(downsample): Sequential(\n{conv(8, 8, 1, 2, '0')}\n{norm(8)}\n)"
    first = shapes(printed(conv(3, 8), block("BasicBlock", around, *main), conv(8, 4)))
    last = shapes(printed(conv(3, 8), block("BasicBlock", *main, around), conv(8, 4)))
    assert first == last == [(8, 32, 32), (8, 16, 16), (8, 16, 16), (8, 16, 16), (4, 16, 16)]


def test_the_sum_comes_before_the_last_activation() -> None:
    """ResNet defines its last ReLU before the shortcut."""
    rows = (conv(8, 8, 3, 2, "conv1"), "(act3): ReLU(inplace=True)")
    around = f"(downsample): Sequential(\n{conv(8, 8, 1, 2, '0')}\n)"
    inner = with_pixels(printed(conv(3, 8), block("BasicBlock", *rows, around)), (3, 32, 32))
    assert [row.kind for row in inner.layers[-4:]] == ["Conv2d", "Sequential", "Conv2d", "ReLU"]


def test_branches_are_put_together() -> None:
    inception = block(
        "Mixed", conv(8, 4, 1, 1, "b1"), conv(8, 6, 1, 1, "b2a"), conv(6, 5, 3, 1, "b2b")
    )
    assert shapes(printed(conv(3, 8), inception, conv(9, 2)))[-1] == (2, 32, 32)


def test_dense_layers_read_all_before_them() -> None:
    layers = "\n".join(
        f"(denselayer{at}): DenseLayer(\n{norm(8 + 4 * at)}\n{conv(8 + 4 * at, 4)}\n)"
        for at in range(3)
    )
    assert shapes(printed(conv(3, 8), f"(b): DenseBlock(\n{layers}\n)", conv(20, 2)))[-1] == (
        2, 32, 32
    )  # fmt: skip


def test_a_gate_reads_the_mean_of_all_pixels() -> None:
    gate = f"(se): SqueezeExcite(\n{conv(8, 2, 1, 1, 'a')}\n(act): ReLU()\n{conv(2, 8, 1)}\n)"
    assert shapes(printed(conv(3, 8), gate, conv(8, 4))) == [
        (8, 32, 32), (2, 1, 1), (8, 1, 1), (4, 32, 32)
    ]  # fmt: skip


def test_channels_go_last_and_come_back() -> None:
    """ConvNeXt: the matrices run over each pixel."""
    rows = (
        "(dw): Conv2d(8, 8, kernel_size=(7, 7), stride=(1, 1), padding=(3, 3), groups=8)",
        "(norm): LayerNorm((8,), eps=1e-06, elementwise_affine=True)",
        "(fc1): Linear(in_features=8, out_features=32, bias=True)",
        "(fc2): Linear(in_features=32, out_features=8, bias=True)",
    )
    found = shapes(printed(conv(3, 8), block("ConvNeXtBlock", *rows), conv(8, 4, 2, 2)))
    assert found[2:4] == [(32, 32, 32), (32, 32, 8)] and found[-1][0] == 4


def test_a_long_skip() -> None:
    up = "(up): ConvTranspose2d(16, 8, kernel_size=(2, 2), stride=(2, 2))"
    down = block("Down", conv(8, 16, 3, 2), norm(16))
    assert shapes(printed(conv(3, 8), down, up, block("Double", conv(16, 8))))[-1] == (8, 32, 32)


def test_a_head_after_flattening_or_a_mean() -> None:
    head = "(fc): Linear(in_features={}, out_features=10, bias=True)"
    pool = "(pool): AdaptiveAvgPool2d(output_size=(1, 1))"
    for rows in ((pool, head.format(8)), ("(f): Flatten(start_dim=1)", head.format(8 * 32 * 32))):
        assert shapes(printed(conv(3, 8), *rows))[-1] == (10,)
    assert shapes(printed(conv(3, 8), head.format(8)))[-1] == (10,), "a mean in no row"


@pytest.mark.parametrize(
    "rows",
    [
        (conv(3, 8), conv(9, 4)),
        (conv(3, 8), "(attn): Attention(\n(qkv): Linear(in_features=8, out_features=24)\n)"),
        (conv(3, 8), block("Bottle2neck", conv(8, 8))),
        (conv(3, 8), "(fuse): ModuleList(\n(0): ModuleList(\n" + conv(8, 8) + "\n)\n)"),
    ],
)
def test_what_does_not_follow_is_said(rows: tuple[str, ...]) -> None:
    assert "torchinfo" in why_not(printed(*rows))


def test_an_input_that_is_too_small() -> None:
    rows = [conv(3, 8, 1), "(p): MaxPool2d(kernel_size=64, stride=64, padding=0)"]
    assert "too small" in why_not(printed(*rows))


def test_matrices_need_no_input() -> None:
    """An MLP's shapes are its own."""
    rows = (
        "(fc1): Linear(in_features=784, out_features=4096, bias=True)", "(act): ReLU()",
        "(fc2): Linear(in_features=4096, out_features=10, bias=True)",
    )  # fmt: skip
    found = estimate(printed(*rows), TrainingOptions(256, optimizer="adam"), stack=Stack(0))
    assert found.memory_mib and 48 <= found.memory_mib <= 200


VIT = (
    "(patch): Conv2d(3, 192, kernel_size=(16, 16), stride=(16, 16))",
    "(blocks): Sequential(\n(0-3): 4 x Block(\n"
    "(norm1): LayerNorm((192,), eps=1e-06, elementwise_affine=True)\n"
    "(attn): Attention(\n(qkv): Linear(in_features=192, out_features=576, bias=True)\n"
    "(proj): Linear(in_features=192, out_features=192, bias=True)\n)\n"
    "(fc1): Linear(in_features=192, out_features=768, bias=True)\n(act): GELU()\n"
    "(fc2): Linear(in_features=768, out_features=192, bias=True)\n)\n)",
    "(head): Linear(in_features=192, out_features=1000, bias=True)",
)


def test_patches_of_an_image_are_tokens() -> None:
    model = printed(*VIT, kind="VisionTransformer")
    by_shape, by_tokens = (
        estimate(model, TrainingOptions(64, **options), stack=Stack(0)).memory_mib
        for options in ({"shape": (3, 224, 224)}, {"seq_len": 197})
    )
    assert by_shape == by_tokens and by_shape
    assert "--coloc-input" in estimate(model, TrainingOptions(64), stack=Stack(0)).reason


def test_an_image_transformer_whose_rows_differ_in_size_needs_its_input() -> None:
    """By a number of tokens hybrids and pyramids came out at a third of the truth."""
    stage = "(n): LayerNorm((384,), eps=1e-06)\n(fc): Linear(in_features=384, out_features=384)"
    pyramid = printed(*VIT[:2], stage, VIT[2], kind="SwinTransformer")
    hybrid = printed(conv(3, 3), *VIT, kind="VisionTransformer")
    for model in (pyramid, hybrid):
        found = estimate(model, TrainingOptions(64, seq_len=197), stack=Stack(0))
        assert found.memory_mib is None and "torchinfo" in found.reason
    by_shape = TrainingOptions(64, shape=(3, 224, 224))
    found = estimate(pyramid, by_shape, stack=Stack(0))
    assert found.memory_mib is None and "the rows before it do not make them" in found.reason
    # Without the head, which a number of tokens alone runs on each of them.
    plain, hybrid = (
        estimate(printed(*rows, kind="VisionTransformer"), by_shape, stack=Stack(0)).memory_mib
        for rows in (VIT[:2], (conv(3, 3), *VIT[:2]))
    )
    assert plain and hybrid and hybrid > plain


def attention(kind: str, width: int, row: str = "Linear") -> str:
    def made(name: str, reads: int, makes: int) -> str:
        if row == "Conv2d":
            return conv(reads, makes, kernel=1, name=name)
        return f"({name}): Linear(in_features={reads}, out_features={makes}, bias=True)"

    rows = made("qkv", width, 3 * width), made("proj", width, width)
    return "\n".join([f"(attn): {kind}(", *rows, ")"])


def test_attention_among_convolutions() -> None:
    """CoAtNet's of convolutions, and matrices that read every pixel."""
    for kind, row in (("Attention2d", "Conv2d"), ("Attention", "Linear")):
        rows = (conv(3, 8, stride=2), attention(kind, 8, row), conv(8, 16))
        qkv = (24, 16, 16) if row == "Conv2d" else (16, 16, 24)
        proj = (8, 16, 16) if row == "Conv2d" else (16, 16, 8)
        assert shapes(printed(*rows)) == [(8, 16, 16), qkv, proj, (16, 16, 16)]


def test_the_attention_of_diffusion_models_has_no_figure() -> None:
    """Its scores are 4 GiB here; it was taken for four convolutions (274 MiB)."""
    reads = [conv(64, 64, kernel=1, name=name) for name in ("q", "k", "v", "proj_out")]
    for kind in ("AttnBlock", "NonLocalBlock"):
        rows = conv(3, 64), block(kind, norm(64), *reads), conv(64, 3)
        found = estimate(printed(*rows), TrainingOptions(32, shape=(3, 64, 64)), stack=Stack(0))
        assert found.memory_mib is None and kind in found.reason


@pytest.mark.parametrize(
    ("kind", "side"),
    [
        ("SelfAttention", 16),  # somebody's own: it may store its scores
        ("Attention", 64),  # and so may this one, of so many pixels
        ("WindowAttentionGlobal", 16),
        ("AttentionDownsample", 16),
        ("Attention", 1),  # of a pooled value
    ],
)
def test_attention_that_no_row_tells(kind: str, side: int) -> None:
    model = printed(conv(3, 8), attention(kind, 8))
    with pytest.raises(SummaryError, match=f"what {kind} does is in no row"):
        with_pixels(model, (3, side, side))


def test_a_matrix_over_the_pixels_and_four_pixels_that_are_one() -> None:
    """MLP-Mixer turns pixels and channels; Swin puts four pixels together."""
    patches = (conv(3, 8, stride=2), "(norm): LayerNorm((8,), eps=1e-06)")
    mixed = (
        "(tokens): Mlp(\n(fc1): Linear(in_features=64, out_features=32)\n(act): GELU()\n"
        "(fc2): Linear(in_features=32, out_features=64)\n)"
    )
    wide = "(fc): Linear(in_features=8, out_features=24)"
    assert shapes(printed(*patches, mixed, wide), 3, 16, 16)[1:] == [(8, 32), (8, 64), (8, 8, 24)]
    merged = (
        "(merge): PatchMerging(\n(norm): LayerNorm((32,), eps=1e-05)\n"
        "(reduction): Linear(in_features=32, out_features=16)\n)"
    )
    assert shapes(printed(*patches, merged), 3, 16, 16)[1:] == [(4, 4, 16)]
    # printed before what it reads; a matrix that happens to read as many as there are pixels
    late = "(fc2): Linear(in_features=32, out_features=8)"
    many = "(fc): Linear(in_features=64, out_features=16)"
    for row in (late, many):
        with pytest.raises(SummaryError):
            with_pixels(printed(*patches, row), (3, 16, 16))


def test_a_convolution_over_time_is_none_of_gpt2s_matrices() -> None:
    rows = "(c): Conv1d(2, 16, kernel_size=(9,), stride=(4,), padding=(4,))", norm(16)
    made = with_pixels(printed(*rows), (2, 1600))
    assert made.layers[1].outputs == ((1, 16, 400),)
    assert made.layers[1].parameters == 2 * 16 * 9 + 16


@pytest.mark.parametrize("text", ["", "x", "3x", "0x3", "3x0", "3,224", "1x2x3x4x5", "10000000"])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(UsageFault):
        shape_of(text)


def test_shapes() -> None:
    assert shape_of("3x224x224") == shape_of("3X224X224") == (3, 224, 224)
    assert shape_of(None) is None
