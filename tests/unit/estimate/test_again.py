# SPDX-License-Identifier: Apache-2.0
"""Gradient checkpointing: what a block keeps, and what is there once more in the backward."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.estimate.api import TrainingOptions, estimate
from slurm_coloc.estimate.rebuild.again import BLOCKS, STAGES
from slurm_coloc.estimate.rebuild.model import rebuild
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary
from tests.unit.estimate.test_rebuild import IMAGE, ONE, kept, left, model, row

BLOCK = "DoubleConv"  # no residual block: its name says nothing of a sum


def blocks(count: int, name: str = BLOCK, norms: int = 1) -> Summary:
    """A convolution, then blocks of two convolutions, normalisations and a GELU, then a head."""
    rows = [row("Conv2d", IMAGE, 576)]
    for _ in range(count):
        rows.append(row(name, IMAGE))
        rows += [row("Conv2d", IMAGE, 576, depth=2)] * 2
        rows += [row("BatchNorm2d", IMAGE, 16, depth=2)] * norms
        rows.append(row("GELU", IMAGE, depth=2))
    return model(*rows, row("Linear", (1, 10), 81_930, reads=(1, 8192)))


def step(summary: Summary, again: bool, batch: int = 1, **how: int) -> Recording:
    what = BLOCKS if again else ""
    return rebuild(summary, Scope(batch=batch, checkpoints=what, inplace=False, **how))


def most(found: Recording) -> int:
    """Bytes at the fullest moment, gradients left out."""
    held, fullest, sizes = 0, 0, []
    for event in found.events:
        if isinstance(event, int):
            size = event if event >= 0 else -sizes[-1 - event]
            sizes += [event] if event >= 0 else []
            held += 0 if event >= 0 and len(sizes) - 1 in found.gradients else size
            fullest = max(fullest, held)
    return fullest


def test_a_block_keeps_what_it_read_alone() -> None:
    # Four tensors a block: what the second convolution, the norm and the GELU read, and the result.
    assert kept(step(blocks(4), False))[ONE] == 1 + 4 * 4
    assert kept(step(blocks(4), True))[ONE] == 1 + 4


def test_one_block_is_there_once_more() -> None:
    """In the backward: the inputs of all, the four tensors of the last block, and gradients of
    one tensor and the one before it."""
    found = most(step(blocks(12), True))
    assert (1 + 12 + 4) * ONE <= found <= (1 + 12 + 4 + 2) * ONE
    assert found == most(step(blocks(11), True)) + ONE
    assert most(step(blocks(12), False)) >= (1 + 12 * 4) * ONE


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(1, 64), st.booleans())
def test_each_step_is_whole(count: int, norms: int, batch: int, residual: bool) -> None:
    """Each free has its allocation, gradients are those of the step without, the output is left."""
    summary = blocks(count, "BasicBlock" if residual else BLOCK, norms)
    plain, found = (step(summary, again, batch) for again in (False, True))
    alive = left(found)
    assert len(alive) - len(found.gradients) <= 4
    assert sum(alive[index] for index in found.gradients) == sum(found.parameters)
    assert (found.parameters, len(found.gradients)) == (plain.parameters, len(plain.gradients))
    assert most(found) <= most(plain) + 2 * batch * ONE


def test_copies_that_autocast_made_stay_until_the_loss() -> None:
    """They are of the cache, not of the block; in the backward each block makes its own."""
    found = kept(step(blocks(4), True, low=2))
    assert found[576 * 2] == 9  # two of each block, and of the first convolution
    sizes = [event for event in step(blocks(4), True, low=2).events if isinstance(event, int)]
    assert sizes.count(576 * 2) == 9 + 8


@pytest.mark.parametrize(
    ("name", "count"), [("Sequential", 4), ("SwinTransformerStage", 4), (BLOCK, 1)]
)
def test_what_holds_blocks_or_stands_alone_is_not_recomputed(name: str, count: int) -> None:
    summary = blocks(count, name)
    assert step(summary, True).events == step(summary, False).events


def test_rows_of_one_convolution_each_are_a_stem() -> None:
    rows = [row("Conv2d", IMAGE, 576)]
    for _ in range(3):
        rows += [row("ConvNormAct", IMAGE), row("Conv2d", IMAGE, 576, depth=2)]
    summary = model(*rows, row("Linear", (1, 10), 81_930, reads=(1, 8192)))
    assert step(summary, True).events == step(summary, False).events


@pytest.mark.parametrize("known", [True, False])
def test_the_user_is_told_what_is_taken_to_be_recomputed(known: bool) -> None:
    def ask(again: bool) -> tuple[int, int, str]:
        found = estimate(
            blocks(8, BLOCK if known else "Sequential"),
            TrainingOptions(batch_size=2_000, checkpointed=again),
            stack=Stack(0),
        )
        assert found.memory_mib is not None and found.upper_mib is not None
        return found.memory_mib, found.upper_mib, " ".join(found.notes)

    plain, again = ask(False), ask(True)
    if known:
        assert again[0] < 0.7 * plain[0] and again[1] < plain[1]
        assert f"each {BLOCK} is taken to be recomputed" in again[2]
    else:
        assert again[0] == plain[0] and "none is taken to be recomputed" in again[2]


def test_the_bound_holds_where_whole_stages_are_recomputed() -> None:
    """timm's ByobNet: within a stage nothing goes before its own backward is over."""
    rows = [row("Conv2d", IMAGE, 576)]
    for _ in range(3):
        rows.append(row("Sequential", IMAGE))
        for _ in range(6):
            rows += [row(BLOCK, IMAGE, depth=2), *[row("Conv2d", IMAGE, 576, depth=3)] * 2]
            rows += [row("BatchNorm2d", IMAGE, 16, depth=3), row("GELU", IMAGE, depth=3)]
    summary = model(*rows, row("Linear", (1, 10), 81_930, reads=(1, 8192)))
    by_stage = rebuild(summary, Scope(batch=1, checkpoints=STAGES, inplace=False))
    assert kept(by_stage)[ONE] == 1 + 3
    assert most(by_stage) > most(step(summary, True))
    found = estimate(summary, TrainingOptions(2_000, checkpointed=True), stack=Stack(0))
    assert found.upper_mib and found.upper_mib >= 2_000 * most(by_stage) / 2**20
