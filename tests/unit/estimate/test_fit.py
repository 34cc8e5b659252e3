# SPDX-License-Identifier: Apache-2.0
"""The largest batch of a bound that rises, and what a training's memory is for."""

from bisect import bisect_right
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.estimate.api import Estimate
from slurm_coloc.estimate.fit import MOST, Bounds
from slurm_coloc.estimate.replay.allocator import MIB, replay
from slurm_coloc.estimate.replay.parts import Part, at_peak, in_mib
from slurm_coloc.estimate.replay.recording import Recording, Scratch, Work
from slurm_coloc.estimate.replay.training import OPTIMIZERS, training


@given(
    st.lists(st.integers(0, 500), min_size=1, max_size=300),
    st.integers(0, 60_000),
    st.booleans(),
)
def test_the_largest_batch(steps: list[int], mib: int, ends: bool) -> None:
    """As trying each batch would find it; behind the last one memory doubles, or has no figure."""
    uppers = [sum(steps[: at + 1]) for at in range(len(steps))]
    asked = []

    def answer(batch: int) -> Estimate:
        asked.append(batch)
        if batch <= len(uppers):
            return Estimate(1, uppers[batch - 1])
        return Estimate() if ends else Estimate(1, max(60_001, uppers[-1]) + batch)

    assert Bounds(answer).largest(mib) == bisect_right(uppers, mib)
    assert len(asked) == len(set(asked)) <= 40


def test_batches_without_an_end() -> None:
    assert Bounds(lambda batch: Estimate(1, 1)).largest(10) == MOST
    assert Bounds(lambda batch: Estimate()).largest(10) == 0


STEP = Recording(
    (4 * MIB, 2 * MIB),
    (MIB,),
    (3 * MIB,),
    (
        64 * MIB, 32 * MIB, Scratch(Work.FORWARD, 10 * MIB, 10 * MIB, 1, 9, 1, 64), 4,
        4 * MIB, -1 - 0, 2 * MIB, -1 - 1,
    ),
    frozenset({3, 4}),
)  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_parts_are_what_the_tensors_hold_at_their_most(optimizer: str) -> None:
    loop = training(STEP, optimizer, lambda work: work.read, blas=8 * MIB)
    held = at_peak(loop.sizes, loop.marks)
    # The allocator rounds, and leaves up to a MiB of a block with its tensor.
    assert 0 <= replay(loop.sizes).allocated - sum(held.values()) <= 4 * MIB
    assert (held[Part.WEIGHTS], held[Part.KEPT]) == (6 * MIB, MIB)
    shares = OPTIMIZERS[optimizer].state
    states = sum(int(size * share) for size in STEP.parameters for share in shares)
    assert held.get(Part.STATES, 0) == states
    # Of the second step's forward, with its workspace; cuBLAS' two stay.
    assert held[Part.WORKSPACE] == 10 * MIB + 16 * MIB
    assert held[Part.ACTIVATIONS] >= 96 * MIB
    assert Part.GRADIENTS not in held


def test_gradients_and_the_optimizer_s_step() -> None:
    """Where little is kept for backward the optimizer's step is where most is held."""
    step = Recording((40 * MIB,), (), (MIB,), (2 * MIB, 40 * MIB, -1), frozenset({1}))
    loop = training(step, "adagrad", lambda work: 0)
    held = at_peak(loop.sizes, loop.marks)
    assert held[Part.GRADIENTS] == 40 * MIB and held[Part.STEP] == 80 * MIB
    assert in_mib(held, 400, 100) == {
        "context": 100, "weights": 40, "optimizer states": 40, "gradients": 40,
        "activations": 1, "optimizer step": 80, "allocator": 99,
    }  # fmt: skip


def test_parts_add_up_whatever_is_held() -> None:
    draw = Random(7)
    for _ in range(200):
        held = {part: draw.randrange(4000 * MIB) for part in Part if draw.random() < 0.6}
        memory, context = draw.randrange(1, 20_000), draw.randrange(3000)
        found = in_mib(held, memory, context)
        assert sum(found.values()) == memory and min(found.values()) > 0
