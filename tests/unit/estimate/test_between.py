# SPDX-License-Identifier: Apache-2.0
"""What stands between rows, in no row: concatenations, stacks, padding, products."""

from dataclasses import replace

from slurm_coloc.estimate.lexing import Shape
from slurm_coloc.estimate.rebuild.autograd import Tape
from slurm_coloc.estimate.rebuild.model import rebuild
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.summary import Layer, Summary
from tests.unit.estimate.test_rebuild import IMAGE, ONE, ROW, TOKENS, kept, model, row

WIDE: Shape = (1, 16, 32, 32)
HEAD = row("Linear", (1, 10), 81930, reads=(1, 8192))


def inside(block: str, *rows: Layer, out: Shape = IMAGE, reads: Shape = IMAGE) -> Summary:
    """A block after a convolution, and a head."""
    below = (replace(one, depth=one.depth + 1) for one in rows)
    return model(row("Conv2d", reads, 576), row(block, out, reads=reads), *below, HEAD)


def step(summary: Summary, batch: int = 1) -> Recording:
    return rebuild(summary, Scope(batch=batch))


def conv(out: Shape, reads: Shape, kernel: int = 1) -> Layer:
    return row("Conv2d", out, out[1] * reads[1] * kernel, reads=reads)


def test_what_was_concatenated_is_one_tensor_and_gets_parts_of_its_gradient() -> None:
    made = step(inside("Net", conv(IMAGE, IMAGE, 9), conv(IMAGE, IMAGE, 9), conv(IMAGE, WIDE)))
    # The first convolution's result, which both blocks and their gradients read; both results are
    # in the concatenation, which the last convolution keeps.
    assert kept(made)[2 * ONE] == 1
    gradients = sum(1 for event in made.events[first_gradient(made) :] if event == 2 * ONE)
    assert gradients == 1
    assert made.gradients and all_have_gradients(made)


def first_gradient(made: Recording) -> int:
    """Where the backward starts: at the loss."""
    return made.events.index(4)


def all_have_gradients(made: Recording) -> bool:
    sizes = [event for event in made.events if isinstance(event, int) and event >= 0]
    return sum(sizes[one] for one in made.gradients) == sum(made.parameters)


def test_a_part_of_a_gradient_is_not_added_to_in_place() -> None:
    tape = Tape()
    one, other = (tape.operator([], 512, (1,), weights=[8]) for _ in range(2))
    both = tape.operator([one, other], 1024, (2,), parts=True)
    again = tape.operator([one, both], 512, (1,), weights=[8])
    before = len(tape.events)
    tape.backward(again)
    # The gradient of `one` is first what came with `again`, then a part of that of `both`: a sum.
    after = [event for event in tape.events[before:] if isinstance(event, int) and event >= 0]
    assert after.count(1024) == 1 and after.count(512) == 2


def test_selective_kernels_stack_their_paths() -> None:
    stack: Shape = (1, 2, 8, 32, 32)
    paths = (replace(conv(IMAGE, IMAGE, 9), depth=2), replace(conv(IMAGE, IMAGE, 9), depth=2))
    lists = Layer("ModuleList", 1, (), ())
    weights = Layer("SelectiveKernelAttn", 1, (stack,), ((1, 2, 8, 1, 1),))
    found = kept(step(inside("SelectiveKernel", lists, *paths, weights)))
    assert found[2 * ONE] == 1


def test_uneven_padding_is_a_copy() -> None:
    half: Shape = (1, 8, 16, 16)
    strided = row("Conv2dSame", half, 576, reads=IMAGE)
    alike = row("StdConv2dSame", half, 576, reads=half)
    last = row("Linear", (1, 10), 20490, reads=(1, 2048))
    found = kept(step(model(row("Conv2d", IMAGE, 576), strided, alike, last)))
    assert found[8 * 33 * 33 * 4] == 1
    assert 8 * 18 * 18 * 4 not in found


def test_a_shortcut_that_runs_first_is_added_at_the_end() -> None:
    few: Shape = (1, 4, 32, 32)
    made = step(
        inside("PreActBottleneck", row("BatchNorm2d", IMAGE, 16), conv(WIDE, IMAGE),
               conv(few, IMAGE), conv(WIDE, few), out=WIDE)
    )  # fmt: skip
    assert all_have_gradients(made)


def test_two_branches_that_widen_are_multiplied() -> None:
    made = kept(step(inside("Net", conv(WIDE, IMAGE), conv(WIDE, IMAGE), conv(IMAGE, WIDE))))
    assert made[2 * ONE] == 3  # both, and their product


def test_a_row_may_read_a_part_of_what_was_made() -> None:
    rows = (conv(WIDE, IMAGE), row("GELU", IMAGE), conv(IMAGE, IMAGE))
    assert kept(step(inside("Net", *rows)))[2 * ONE] == 1  # the part is a view of it


def test_a_weight_for_each_sample() -> None:
    summary = model(row("Conv2d", IMAGE, 576), row("CondConv2d", IMAGE, 4 * 8 * 8 * 9), HEAD)
    experts = replace(summary.layers[2], attributes=(("kernel_elements", 9),))
    layers = (*summary.layers[:2], experts, *summary.layers[3:])
    found = kept(step(replace(summary, layers=layers), batch=3))
    assert found[3 * 8 * 8 * 9 * 4] == 1  # one of the four experts' size for each of three samples


def tokens(block: str, *rows: Layer, own: int = 0, out: Shape = TOKENS) -> Summary:
    """A block over tokens after a matrix, and a head."""
    below = (replace(one, depth=2) for one in rows)
    head = row("Linear", (*out[:-1], 10), out[-1] * 10 + 10, reads=out)
    return model(row("Linear", TOKENS, 128 * 129), row(block, out, own, reads=TOKENS), *below, head)


def test_one_matrix_for_attention_and_feed_forward() -> None:
    width, hidden = 128, 512
    rows = (
        row("LayerNorm", TOKENS, 256),
        row("Linear", (1, 64, 3 * width + hidden), (3 * width + hidden) * 129, reads=TOKENS),
        row("GELU", (1, 64, hidden)),
        row("Linear", TOKENS, width * (width + 1)),
        row("Linear", TOKENS, width * (hidden + 1), reads=(1, 64, hidden)),
    )
    found = kept(step(tokens("ParallelScalingBlock", *rows)))
    assert found[7 * ROW] == 1  # queries, keys, values and the hidden part: one tensor
    assert found[4 * ROW] == 1  # what the last matrix reads; the activation reads a part
    assert found[ROW] == 4  # the block's input, its norm, attention's result, the block's


def test_heads_beside_the_batch_have_no_fused_kernel() -> None:
    head = row("Identity", (4, 64, 32))
    rows = (
        row("Linear", (1, 64, 384), 384 * 129, reads=TOKENS),
        head,
        row("Linear", TOKENS, 16512),
    )
    assert kept(step(tokens("Attention", *rows)))[4 * 64 * 64 * 4] == 1


def test_a_table_of_positions_tells_the_heads_and_queries_may_be_fewer() -> None:
    fewer: Shape = (1, 16, 128)
    heads = 4

    def normed(out: Shape, reads: Shape) -> tuple[Layer, ...]:
        count = out[-1] * reads[-1]
        return (
            row("LinearNorm", out, depth=2, reads=reads),
            replace(row("Linear", out, count, reads=reads), depth=3),
            replace(row("BatchNorm1d", out, 2 * out[-1]), depth=3),
        )

    rows = (*normed((1, 64, 192), TOKENS), *normed((1, 16, 64), (1, 16, 128)),
            *normed(fewer, fewer))  # fmt: skip
    depths = [replace(one, depth=max(2, one.depth)) for one in rows]
    head = row("Linear", (1, 16, 10), 1290, reads=fewer)
    block = row("AttentionDownsample", fewer, heads * 64, reads=TOKENS)
    found = kept(step(model(row("Linear", TOKENS, 128 * 129), block, *depths, head)))
    assert found[heads * 16 * 64 * 4] >= 1
    assert heads * 64 * 64 * 4 not in found


def test_heads_that_talk_keep_more_scores() -> None:
    def block(*mixes: Layer) -> dict[int, int]:
        first = row("Linear", (1, 64, 384), 384 * 129, reads=TOKENS)
        drop = row("Dropout", (1, 4, 64, 64))
        last = row("Linear", TOKENS, 16512)
        return kept(step(tokens("TalkingHeadAttn", first, *mixes, drop, last)))

    mix = row("Linear", (1, 64, 64, 4), 20)
    scores = 4 * 64 * 64 * 4
    assert block()[scores] == 1
    assert block(mix, mix)[scores] == 4


def test_a_temperature_keeps_the_product_too() -> None:
    drop = row("Dropout", (1, 4, 32, 32))
    rows = (
        row("Linear", (1, 64, 384), 384 * 129, reads=TOKENS),
        drop,
        row("Linear", TOKENS, 16512),
    )
    scores = 4 * 32 * 32 * 4
    assert kept(step(tokens("XCA", *rows)))[scores] == 1
    assert kept(step(tokens("XCA", *rows, own=4)))[scores] == 2


def test_a_lambda_layer_copies_its_table_for_all_pairs() -> None:
    places, key, value = 64, 8, 32
    small: Shape = (1, 128, 8, 8)
    rows = (
        row("Conv2d", (1, 4 * key + key + value, 8, 8), 128 * 72, reads=small),
        row("BatchNorm2d", (1, 4 * key, 8, 8), 128),
        row("BatchNorm2d", (1, value, 8, 8), 64),
        row("Identity", small),
    )
    below = (replace(one, depth=2) for one in rows)
    head = row("Linear", (1, 10), 81930, reads=(1, 8192))
    block = row("LambdaLayer", small, 225 * key)
    found = kept(step(model(row("Conv2d", small, 128 * 128), block, *below, head)))
    assert found[places * places * value * 4] == 1
    assert found[places * places * key * 4] == 1
    assert found[4 * places * key * value * 4] == 1
