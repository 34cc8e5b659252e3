# SPDX-License-Identifier: Apache-2.0
"""What texts hide that show no inputs: blocks that a depth limit closed, attention's products and
concatenations of flat tables."""

from dataclasses import replace

import pytest

from slurm_coloc.estimate.api import Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.rebuild import products
from slurm_coloc.estimate.rebuild.opening import opened
from slurm_coloc.estimate.rebuild.opening.rows import Style, gate, parameters
from slurm_coloc.estimate.rebuild.products import hides_attention
from slurm_coloc.estimate.rebuild.tree import Node, tree
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary
from tests.unit.estimate.test_opening import cut
from tests.unit.estimate.texts import example

MIB = 1 << 20


def asked(summary: Summary, batch: int = 32) -> tuple[int, int]:
    """Estimate and bound (MiB) without a context."""
    options = TrainingOptions(batch_size=batch, optimizer="sgd")
    told: Estimate = estimate(summary, options, stack=Stack(0), estimator="text")
    assert told.memory_mib and told.upper_mib, told.reason
    return told.memory_mib, told.upper_mib


def table(rows: list[tuple[str, tuple[int, ...], int]]) -> str:
    """As torchsummary prints them."""
    lines = ["-" * 64, "        Layer (type)               Output Shape         Param #", "=" * 64]
    for number, (kind, shape, count) in enumerate(rows, 1):
        sides = ", ".join(map(str, (-1, *shape)))
        lines.append(f"{f'{kind}-{number}':>20} {f'[{sides}]':>26} {count:>15,}")
    total = sum(count for _, _, count in rows)
    ends = [f"{what} params: {many:,}" for what, many in
            (("Total", total), ("Trainable", total), ("Non-trainable", 0))]  # fmt: skip
    return "\n".join([*lines, "=" * 64, *ends, "-" * 64, ""])


def flat(nodes: list[Node]) -> list[tuple[str, tuple[int, ...], int]]:
    """The rows of a tree as torchsummary has them: what a container runs stands before it."""
    found: list[tuple[str, tuple[int, ...], int]] = []
    for node in nodes:
        found += flat(node.children)
        if node.layer.outputs and node.layer.kind not in ("Sequential", "ModuleList"):
            found.append((node.layer.kind, node.layer.outputs[0][1:], node.layer.parameters))
    return found


@pytest.mark.parametrize(
    "name", ["vit_small_torchinfo.txt", "resnet50_torchinfo.txt", "efficientnet_b0_torchinfo.txt"]
)
def test_a_flat_table_says_what_the_tree_says(name: str) -> None:
    whole = parse_summary(example(name))
    rows = flat(tree(whole)[0].children)
    less = parse_summary(table(rows))
    assert less.format == "torchsummary"
    (known, _), (told, bound) = asked(whole), asked(less)
    assert abs(told / known - 1) < 0.06
    assert bound < 1.4 * told, "its attention is known"


def _attention(*between: tuple[str, tuple[int, ...], int], matrix: bool = True) -> Summary:
    """Four blocks of 6 heads over 196 tokens, as a flat table; ``between``: rows behind the matrix
    of queries, keys and values."""
    rows: list[tuple[str, tuple[int, ...], int]] = [("Conv2d", (384, 14, 14), 295_296)]
    rows.append(("PatchEmbed", (196, 384), 0))
    for _ in range(4):
        rows.append(("LayerNorm", (196, 384), 768))
        if matrix:
            rows.append(("Linear", (196, 1152), 443_520))
        rows += [*between, ("Linear", (196, 384), 147_840), ("Attention", (196, 384), 0)]
        rows.append(("Block", (196, 384), 0))
    return parse_summary(table([*rows, ("Linear", (196, 10), 3_850)]))


def test_norms_of_queries_and_keys_that_are_off_change_nothing() -> None:
    heads = ("Identity", (6, 196, 64), 0)
    assert asked(_attention(heads, heads, ("Identity", (196, 384), 0))) == asked(_attention())


def test_scores_that_a_dropout_shows_are_stored() -> None:
    fused, bound = asked(_attention())
    stored, wide = asked(_attention(("Dropout", (6, 196, 196), 0)))
    scores = 4 * 32 * 6 * 196 * 196 * 4 / MIB  # of four blocks, in 32 bits
    assert stored - fused > 1.2 * scores
    assert wide / stored > 1.5 > bound / fused, "what meets the scores is in no row"


def test_attention_whose_matrices_are_no_modules_has_the_wide_margin() -> None:
    told, bound = asked(_attention(matrix=False))
    assert bound / told > 1.5


def test_a_picture_that_is_dropped_out_is_no_attention() -> None:
    """MetaFormer's first blocks, beside attention whose two matrices stand in rows."""
    picture = Layer("Dropout", outputs=((1, 256, 56, 56),))
    matrices = [Layer("Linear", outputs=((1, 196, width),), parameters=9) for width in (960, 320)]
    rows = [picture, *matrices, Layer("Attention", outputs=((1, 196, 320),), leaf=False)]
    assert not hides_attention(rows)
    assert hides_attention(rows[:1] + rows[2:]), "one of its matrices is missing"
    mixed = Layer("Linear", outputs=((1, 196, 196, 4),), parameters=20)  # CaiT's heads
    assert hides_attention([*rows[:2], mixed, *rows[2:]])


def _concatenated(last: int) -> Summary:
    """A block of VoVNet: three convolutions, and one whose filters read ``last`` channels."""
    rows: list[tuple[str, tuple[int, ...], int]] = [
        ("Conv2d", (64, 56, 56), 1_728), ("ConvNormAct", (64, 56, 56), 0),
    ]  # fmt: skip
    for read in (64, 128, 128):
        rows += [("Conv2d", (128, 56, 56), 9 * read * 128), ("BatchNorm2d", (128, 56, 56), 256),
                 ("ConvNormAct", (128, 56, 56), 0)]  # fmt: skip
    rows += [("Conv2d", (256, 56, 56), 256 * last), ("BatchNorm2d", (256, 56, 56), 512)]
    return parse_summary(table([*rows, ("Linear", (10,), 2_570)]))


def test_a_convolution_that_reads_more_than_was_made_reads_a_concatenation() -> None:
    more = 32 * (448 - 128) * 56 * 56 * 4 / MIB  # 64 + 3 * 128 channels in place of the last 128
    found = asked(_concatenated(448))[0] - asked(_concatenated(128))[0]
    assert more < found < 2.2 * more, "it is kept, and its gradient is made"


def test_concatenations_that_are_never_found_are_not_looked_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = []
    monkeypatch.setattr(products, "gathered", lambda *_: looks.append(1))
    odd = ("Conv2d", (64, 56, 56), 64 * (9 * (64 * 37 + 1)))
    asked(parse_summary(table([("Conv2d", (64, 56, 56), 1_728), *[odd] * 1_000])))
    assert 0 < len(looks) <= 4 * (products.MOST_MISSED + 1)


def _closed(kind: str) -> Summary:
    """The small Transformer at depth 3, as a model of another class whose blocks stay closed."""
    less = cut(parse_summary(example("vit_small_torchinfo.txt")), 3)
    rows = [
        replace(row, kind="Strange", parameters=row.parameters + 1) if row.kind == "Mlp" else row
        for row in less.layers
    ]
    rows[0] = replace(rows[0], kind=kind, leaf=False)
    more = sum(row.kind == "Strange" for row in rows)
    return replace(less, layers=tuple(rows), parameters=less.parameters + more)


def test_closed_blocks_of_published_classes_keep_what_those_keep() -> None:
    other, hiera, convit = _closed("Net"), _closed("Hiera"), _closed("ConVit")
    assert opened(hiera).closed
    (plain, wide), (told, bound), (most, _) = asked(other), asked(hiera), asked(convit)
    assert plain < told < most
    assert bound / told < 1.35 < 1.5 < wide / plain


def test_a_gate_with_a_normalisation_between_its_matrices() -> None:
    inside = gate(Style(), (1, 228, 28, 28), (1, 228, 28, 28), 8_949)  # ReXNet's
    assert inside is not None
    assert parameters(inside) == 8_949
    assert [node.layer.kind for node in inside][1] == "BatchNorm2d"
    assert gate(Style(), (1, 228, 28, 28), (1, 228, 28, 28), 8_950) is None


TORCHINFO = """\
==========================================================================
Layer (type:depth-idx)                   Output Shape              Param #
==========================================================================
Net                                      [8, 64, 32, 32]           --
├─Conv2d: 1-1                            [8, 64, 32, 32]           1,728
├─BatchNorm2d: 1-2                       [8, 64, 32, 32]           128
├─ReLU: 1-3                              [8, 64, 32, 32]           --
├─{kind}: 1-4                            [8, 64, 32, 32]           {count}
==========================================================================
Total params: {total}
Trainable params: {total}
Non-trainable params: 0
==========================================================================
Forward/backward pass size (MB): {mb:.2f}
==========================================================================
"""


@pytest.mark.parametrize(("count", "hidden"), [(5, 65_536), (64, 0), (128, 0), (1, 0)])
def test_a_small_block_hides_a_row_where_its_parameters_are_no_vectors(
    count: int, hidden: int
) -> None:
    """Efficient channel attention has five; a scale has as many as channels."""
    elements = 8 * 65_536 * 3  # the footer counts two rows, and one in the block
    text = TORCHINFO.format(
        kind="EcaModule", count=count, total=f"{1_856 + count:,}", mb=elements * 8 / 1e6
    )
    assert abs(parse_summary(text).hidden_outputs - hidden) < 1_000


def test_blocks_whose_normalisation_holds_the_activation_though_no_row_shows_one() -> None:
    conv, elements = 9 * 64 * 64 + 128, 8 * 65_536 * 3
    text = TORCHINFO.format(
        kind="ConvNormAct", count=f"{conv:,}", total=f"{1_856 + conv:,}", mb=elements * 8 / 1e6
    )
    rows = opened(parse_summary(text))
    assert not rows.closed
    assert rows.found == 65_536, "the footer counts its convolution alone"


def test_a_normalisation_that_releases_write_in_two_ways_is_told() -> None:
    whole = parse_summary(example("vit_small_torchinfo.txt"))
    rows = [
        replace(row, kind="RmsNorm") if row.kind == "LayerNorm" else row for row in whole.layers
    ]
    options = TrainingOptions(batch_size=32)
    told = estimate(replace(whole, layers=tuple(rows)), options, stack=Stack(0), estimator="text")
    assert "wider margin: what RmsNorm does inside is not known" in told.notes


def test_a_footer_that_counts_more_than_any_model_has_gets_a_reason() -> None:
    """Found by make fuzz: what it counts beyond the rows was made one by one, until no memory was
    left."""
    rule = "=" * 80
    text = (
        f"{rule}\nLayer (type:depth-idx)      Output Shape      Param #\n{rule}\n"
        f"Net     [8, 3, 8, 8]   --\n├─Conv2d: 1-1   [8, 32, 8, 8]   896\n"
        f"├─OwnBlock: 1-2   [8, 32, 8, 8]   9,248\n{rule}\n"
        f"Total params: 10,144\nTrainable params: 10,144\nNon-trainable params: 0\n{rule}\n"
        f"Input size (MB): 0.01\nForward/backward pass size (MB): 999999999999.00\n{rule}\n"
    )
    options = TrainingOptions(batch_size=1)
    told = estimate(parse_summary(text), options, stack=Stack(0), estimator="text")
    assert told.memory_mib is None and "layers" in told.reason, told
