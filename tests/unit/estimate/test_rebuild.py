# SPDX-License-Identifier: Apache-2.0
"""A step rebuilt from rows: what is kept for the backward pass, counted by hand."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.lexing import Shape
from slurm_coloc.estimate.rebuild.doubt import doubts
from slurm_coloc.estimate.rebuild.model import rebuild
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Layer, Summary, family_of

IMAGE: Shape = (1, 8, 32, 32)
ONE = 8 * 32 * 32 * 4  # bytes of IMAGE
TOKENS: Shape = (1, 64, 128)
ROW = 64 * 128 * 4


def row(
    kind: str, shape: Shape, parameters: int = 0, depth: int = 1, reads: Shape | None = None
) -> Layer:
    return Layer(kind, depth, (reads or shape,), (shape,), parameters)


def model(*rows: Layer) -> Summary:
    """Rows below a top of no known kind, which reads what the first reads."""
    top = Layer("Net", 0, rows[0].inputs, rows[-1].outputs, leaf=False)
    layers = []
    for one, after in zip(rows, (*rows[1:], None), strict=True):
        inner = after is not None and after.depth > one.depth
        layers.append(
            Layer(one.kind, one.depth, one.inputs, one.outputs, one.parameters, leaf=not inner)
        )
    count = sum(one.parameters for one in rows)
    layers = [top, *layers]
    return Summary("torchinfo", family_of(tuple(layers)), count, count, tuple(layers), 1)


def left(step: Recording) -> dict[int, int]:
    """Numbers and sizes of what is not freed in a step; each free has its allocation."""
    sizes: list[int] = []
    alive: dict[int, int] = {}
    for event in step.events:
        if isinstance(event, int) and event >= 0:
            alive[len(sizes)] = event
            sizes.append(event)
        elif isinstance(event, int):
            del alive[-1 - event]
    return alive


def kept(step: Recording) -> dict[int, int]:
    """How many storages of each size live when the backward starts, which is at the loss."""
    sizes: list[int] = []
    alive: set[int] = set()
    for event in step.events:
        if isinstance(event, int) and event >= 0:
            if event == 4:  # the loss
                break
            alive.add(len(sizes))
            sizes.append(event)
        elif isinstance(event, int):
            alive.discard(-1 - event)
    found: dict[int, int] = {}
    for index in alive:
        found[sizes[index]] = found.get(sizes[index], 0) + 1
    return found


def test_convolution_norm_and_relu_keep_two() -> None:
    # The convolution keeps the image, which is the batch's own; the norm what the convolution made,
    # the ReLU its result, which is in the place of the norm's.
    step = rebuild(
        model(
            row("Conv2d", IMAGE, 576), row("BatchNorm2d", IMAGE, 16), row("ReLU", IMAGE),
            row("Flatten", (1, 8192)), row("Linear", (1, 10), 81930, reads=(1, 8192)),
        ),
        Scope(batch=1),
    )  # fmt: skip
    assert kept(step)[ONE] == 2


def test_gelu_keeps_what_it_reads() -> None:
    step = rebuild(
        model(
            row("Conv2d", IMAGE, 576), row("GELU", IMAGE),
            row("Linear", (1, 10), 81930, reads=(1, 8192)),
        ),
        Scope(batch=1),
    )  # fmt: skip
    assert kept(step)[ONE] == 2


def test_prelu_has_a_gradient_of_its_weight_for_each_element() -> None:
    """Of the result's size, for as long as the backward of the row runs."""

    def made(kind: str) -> int:
        rows = (
            row("Conv2d", IMAGE, 576), row(kind, IMAGE),
            row("Linear", (1, 10), 81930, reads=(1, 8192)),
        )  # fmt: skip
        step = rebuild(model(*rows), Scope(batch=1))
        freed = {-1 - event for event in step.events if isinstance(event, int) and event < 0}
        sizes = [event for event in step.events if isinstance(event, int) and event >= 0]
        assert all(at in freed for at, size in enumerate(sizes) if size == ONE)
        return sizes.count(ONE)

    assert made("PReLU") == made("GELU") + 1


def attention(*inside: Layer) -> Summary:
    return model(
        row("Linear", TOKENS, 128 * 129),
        row("Attention", TOKENS),
        row("Linear", (1, 64, 384), 384 * 129, depth=2, reads=TOKENS),
        *inside,
        row("Linear", TOKENS, 128 * 129, depth=2),
        row("Linear", (1, 64, 10), 1290, reads=TOKENS),
    )


def test_a_fused_kernel_keeps_no_scores() -> None:
    found = kept(rebuild(attention(), Scope(batch=1)))
    assert found[3 * ROW] == 1  # q, k and v in one
    assert found[ROW] == 3  # what attention reads, its result, what the last layer reads


def test_a_row_of_scores_means_they_are_stored() -> None:
    scores = row("Softmax", (1, 4, 64, 64), depth=2)
    found = kept(rebuild(attention(scores), Scope(batch=1)))
    assert found[4 * 64 * 64 * 4] == 1
    assert 3 * ROW not in found  # copies of q, k and v are kept in their place
    assert found[ROW] == 6


def test_a_shortcut_is_read_from_the_block() -> None:
    # A downsampling row reads the block's input, not what the row before it made.
    wide: Shape = (1, 32, 32, 32)
    step = rebuild(
        model(
            row("Conv2d", IMAGE, 576),
            row("Bottleneck", wide, reads=IMAGE),
            row("Conv2d", wide, 256, depth=2, reads=IMAGE),
            row("BatchNorm2d", wide, 64, depth=2),
            row("Conv2d", wide, 256, depth=2, reads=IMAGE),
            row("ReLU", wide, depth=2),
            row("Linear", (1, 10), 327690, reads=(1, 32768)),
        ),
        Scope(batch=1),
    )
    assert kept(step)[ONE] == 1  # read twice, kept once


ROWS = st.lists(
    st.sampled_from(("Conv2d", "BatchNorm2d", "ReLU", "GELU", "SqueezeExcite", "LayerScale")),
    min_size=1,
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(ROWS, st.integers(1, 64))
def test_every_step_is_whole(kinds: list[str], batch: int) -> None:
    """Each free has its allocation, every parameter a gradient, and what is left is that and the
    output."""
    rows = [row(kind, IMAGE, 64 if kind in ("Conv2d", "BatchNorm2d") else 0) for kind in kinds]
    step = rebuild(model(row("Conv2d", IMAGE, 576), *rows), Scope(batch=batch))
    alive = left(step)
    assert sum(alive[index] for index in step.gradients) == sum(step.parameters)
    assert len(alive) - len(step.gradients) <= 4


def test_what_is_not_understood_is_named_and_widens_the_bound() -> None:
    plain = attention()
    strange = model(
        *(
            row("LambdaLayer" if x.kind == "Attention" else x.kind, x.outputs[0], x.parameters,
                x.depth, x.inputs[0])
            for x in plain.layers[1:]
        )
    )  # fmt: skip
    assert doubts(plain) == () and doubts(strange) == ("LambdaLayer",)
    known, unknown = (
        estimate(summary, TrainingOptions(8), stack=Stack(0), estimator="text")
        for summary in (plain, strange)
    )
    assert known.memory_mib and known.upper_mib and unknown.memory_mib and unknown.upper_mib
    assert any("LambdaLayer" in note for note in unknown.notes)
    assert unknown.upper_mib / unknown.memory_mib > known.upper_mib / known.memory_mib


def _frozen(one: Layer) -> Layer:
    return replace(one, frozen=True)


def test_what_is_frozen_before_all_that_is_trained_keeps_nothing() -> None:
    """Transfer learning: only what the head reads is kept, besides its result."""
    body = [row("Linear", TOKENS, 128 * 129), row("GELU", TOKENS), row("Linear", TOKENS, 128 * 129)]
    head = row("Linear", TOKENS, 128 * 129)
    trained = kept(rebuild(model(*body, head), Scope(batch=1)))
    step = rebuild(_as_frozen(model(*body, head), 3), Scope(batch=1))
    assert kept(step)[ROW] < trained[ROW]
    assert kept(step)[ROW] == 3  # what the head reads, its result, log-softmax
    assert sum(step.parameters) == 128 * 129 * 4
    assert sum(step.constants) == 2 * 128 * 129 * 4


def test_a_frozen_matrix_on_the_way_of_a_gradient_keeps_no_input() -> None:
    """As under LoRA: the gradient goes through it, but needs the matrix alone."""
    rows = [row("Linear", TOKENS, 128 * 129) for _ in range(3)]
    free = kept(rebuild(model(*rows), Scope(batch=1)))
    whole = model(*rows)
    layers = [_frozen(one) if place == 2 else one for place, one in enumerate(whole.layers)]
    fixed = kept(rebuild(replace(whole, layers=tuple(layers)), Scope(batch=1)))
    assert fixed[ROW] == free[ROW] - 1


def test_nothing_trained_has_no_backward() -> None:
    rows = [row("Linear", TOKENS, 128 * 129) for _ in range(2)]
    step = rebuild(_as_frozen(model(*rows), 2), Scope(batch=1))
    assert not step.gradients
    assert not sum(step.parameters)


def _as_frozen(summary: Summary, many: int) -> Summary:
    """The first ``many`` rows below the top are not trained."""
    layers = [
        _frozen(one) if 1 <= place <= many else one for place, one in enumerate(summary.layers)
    ]
    return replace(summary, layers=tuple(layers))


def _flat(*rows: tuple[str, Shape, int]) -> Summary:
    """As torchsummary's parser gives it: containers after their rows."""
    layers = tuple(
        Layer(kind, 0, (), (shape,), count, leaf=count > 0 or kind != "Block")
        for kind, shape, count in rows
    )
    count = sum(row.parameters for row in layers)
    return Summary("torchsummary", family_of(layers), count, count, layers, 1)


def test_a_container_of_a_flat_table_makes_nothing() -> None:
    rows = [("Linear", TOKENS, 128 * 129), ("GELU", TOKENS, 0), ("Linear", TOKENS, 128 * 129)]
    bare = kept(rebuild(_flat(*rows), Scope(batch=1)))
    assert kept(rebuild(_flat(*rows, ("Block", TOKENS, 0)), Scope(batch=1))) == bare


def test_a_table_of_torchsummary_has_the_wider_margin() -> None:
    """With blocks or without: what its rows sum and gate is in none of them."""
    rows = [("Conv2d", (64, 128, 128), 1792), ("ReLU", (64, 128, 128), 0)]
    options, stack = TrainingOptions(batch_size=64), Stack(1000)
    for more in ((), (("Block", (64, 128, 128), 0),)):
        answer = estimate(_flat(*rows, *more), options, stack=stack, estimator="text")
        assert answer.memory_mib and answer.upper_mib
        assert answer.upper_mib == 1000 + int((answer.memory_mib - 1000) * 1.28) + 64
        assert any(note.startswith("wider margin") for note in answer.notes)


def test_attentions_product_in_a_flat_table() -> None:
    """A matrix that reads a third of what was made: one tensor more is kept than the rows show."""
    wide: Shape = (1, 64, 384)
    rows = [("Linear", wide, 128 * 384 + 384), ("Linear", TOKENS, 128 * 129)]
    found = kept(rebuild(_flat(("Linear", TOKENS, 128 * 129), *rows), Scope(batch=1)))
    assert found[3 * ROW] == 1
    assert found[ROW] == 4  # the first result, the product, the output, log-softmax
