# SPDX-License-Identifier: Apache-2.0
"""Shapes of print(model) for blocks whose code is published and does more than their rows say.

What each makes was read off torchinfo's tables of the same blocks.
"""

import pytest

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.lexing import Shape
from slurm_coloc.estimate.pixels.walk import with_pixels
from slurm_coloc.estimate.summary import Summary
from tests.unit.estimate.test_pixels import block, conv, norm, printed, shapes


def linear(name: str, reads: int, makes: int) -> str:
    return f"({name}): Linear(in_features={reads}, out_features={makes}, bias=True)"


def layer_norm(width: int, kind: str = "LayerNorm") -> str:
    return f"(norm): {kind}(({width},), eps=1e-06, elementwise_affine=True)"


def of_kind(summary: Summary, kind: str, side: int = 32) -> list[Shape]:
    """Of what the rows of this class make."""
    made = with_pixels(summary, (3, side, side))
    return [row.outputs[0][1:] for row in made.layers if row.kind == kind]


def test_each_part_of_the_channels_by_itself() -> None:
    """Res2Net: two lists whose rows come in turn, a pool for the part that is not convolved."""
    three = conv(4, 4, stride=2, name="0-2").replace(": ", ": 3 x ", 1)
    norms = norm(4).replace("(bn): ", "(0-2): 3 x ")
    rows = (
        conv(8, 16, kernel=1), norm(16),
        "\n".join(["(convs): ModuleList(", three, ")"]),
        "\n".join(["(bns): ModuleList(", norms, ")"]),
        "(pool): AvgPool2d(kernel_size=3, stride=2, padding=1)",
        conv(16, 32, kernel=1), norm(32),
        "\n".join(["(downsample): Sequential(", conv(8, 32, kernel=1, stride=2), ")"]),
    )  # fmt: skip
    model = printed(conv(3, 8), block("Bottle2neck", *rows), conv(32, 8))
    part, whole = (4, 16, 16), (32, 16, 16)
    assert shapes(model) == [
        (8, 32, 32), (16, 32, 32), part, part, part, whole, whole, (8, 16, 16),
    ]  # fmt: skip
    kinds = [row.kind for row in with_pixels(model, (3, 32, 32)).layers]
    turns = ["Conv2d", "BatchNorm2d"] * 3
    assert any(kinds[i : i + 6] == turns for i in range(len(kinds)))


@pytest.mark.parametrize("keep", [0, 1])
def test_parts_in_another_order_have_no_figure(keep: int) -> None:
    lists = "(convs): ModuleList(\n" + conv(4, 4) + "\n)", norm(4)
    rows = conv(8, 16, kernel=1), lists[keep], conv(4, 32, kernel=1)
    with pytest.raises(SummaryError, match="torchinfo"):
        with_pixels(printed(conv(3, 8), block("Bottle2neck", *rows)), (3, 32, 32))


def test_queries_of_every_second_pixel() -> None:
    """LeViT: keys and values of all pixels, queries of a quarter of them."""
    pooled = "\n".join(["(q): Sequential(", "(down): Downsample()", linear("ln", 8, 8), ")"])
    attention = block("AttentionDownsample", linear("kv", 8, 40), pooled, linear("proj", 32, 16))
    model = printed(conv(3, 8, stride=2), attention, linear("fc", 16, 4), kind="LevitDistilled")
    assert shapes(model) == [(8, 16, 16), (256, 40), (64, 8), (64, 16), (64, 4)]


def test_a_block_that_pools_its_queries() -> None:
    """Hiera: four pixels become one where the channels double; the shortcut is printed first."""
    attention = "\n".join(
        ["(attn): MaskUnitAttention(", linear("qkv", 8, 48), linear("proj", 16, 16), ")"]
    )
    rows = layer_norm(8), linear("proj", 8, 16), attention, layer_norm(16), linear("fc", 16, 16)
    model = printed(conv(3, 8, stride=2), block("HieraBlock", *rows), kind="Hiera")
    assert shapes(model) == [(8, 16, 16), (256, 16), (256, 48), (64, 16), (64, 16)]


def swin(kind: str, side: int) -> list[Shape]:
    places = ("Linear(in_features=2, out_features=512)", "Linear(in_features=512, out_features=4)")
    rows = (
        linear("qkv", 32, 96), "(attn_drop): Dropout(p=0.0, inplace=False)", linear("proj", 32, 32),
        "\n".join(["(mlp): Sequential(", *(f"({i}): {one}" for i, one in enumerate(places)), ")"]),
    )  # fmt: skip
    model = printed(conv(3, 32, stride=4), block(kind, *rows), kind="SwinTransformerV2")
    return of_kind(model, "Dropout", side)


def test_scores_of_windows() -> None:
    """Swin 2 stores them; a window's size is in no row: it is the largest that was published."""
    assert swin("WindowAttention", 256) == [(4, 64 * 64, 16 * 16)]
    assert swin("WindowMultiHeadAttention", 224) == [(4, 56 * 56, 7 * 7)]
    assert swin("WindowAttention", 32) == [(4, 8 * 8, 2 * 2)]


def test_keys_and_values_of_fewer_pixels() -> None:
    """PVT: its matrices are printed before the convolution that makes fewer pixels."""
    rows = (
        linear("q", 8, 8), linear("kv", 8, 16), linear("proj", 8, 8),
        conv(8, 8, kernel=1, stride=4, name="sr"), layer_norm(8),
    )  # fmt: skip
    model = printed(conv(3, 8), layer_norm(8), block("Attention", *rows), kind="PyramidVision")
    assert shapes(model) == [(8, 32, 32), (1024, 8), (64, 16), (1024, 8), (64, 8)]
    # the convolution first: what reads as much as it makes may read all pixels
    model = printed(conv(3, 8), layer_norm(8), block("Attention", *rows[3:], *rows[:3]))
    assert shapes(model)[2:] == [(32, 32, 8), (8, 8, 16), (32, 32, 8)]


def test_attention_between_channels() -> None:
    """DaViT's matrices read every pixel; a gate of that name (CBAM) stays one."""
    own = block("ChannelAttention", linear("qkv", 8, 24), linear("proj", 8, 8))
    gate = block("ChannelAttention", conv(8, 2, kernel=1), conv(2, 8, kernel=1))
    model = printed(conv(3, 8), layer_norm(8), own, kind="DaVit")
    assert shapes(model) == [(8, 32, 32), (1024, 24), (1024, 8)]
    pool = "(pool): AdaptiveAvgPool2d(output_size=1)"
    rows = gate.replace("ChannelAttention(", f"ChannelAttention(\n{pool}")
    assert shapes(printed(conv(3, 8), rows, conv(8, 8)))[-1] == (8, 32, 32)


def test_patches_of_a_network_whose_head_is_not_run() -> None:
    head = "(head): ClassifierHead(\n(global_pool): SelectAdaptivePool2d(pool_type=)\n)"
    backbone = "\n".join(["(backbone): ResNetV2(", conv(3, 8, stride=4), head, ")"])
    model = printed(block("HybridEmbed", backbone, conv(8, 16, kernel=1)))
    assert shapes(model) == [(8, 8, 8), (16, 8, 8)]
