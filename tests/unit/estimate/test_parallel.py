# SPDX-License-Identifier: Apache-2.0
"""Several data-parallel processes: DDP's buckets, and what ZeRO and FSDP divide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.api import NCCL_MIB, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.allocator import MIB, replay
from slurm_coloc.estimate.replay.parallel import ALONE, CHUNK, Ranks, buckets, replicated, spread
from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import training
from tests.unit.estimate.texts import example

BERT = parse_summary(example("bert_base_repr.txt"))
STACK = Stack(1000)
SIZES = st.lists(st.integers(1, 200 * MIB), min_size=1, max_size=40)


def mib(stage: int, count: int, optimizer: str = "adamw") -> int:
    options = TrainingOptions(2, optimizer=optimizer, world_size=count, zero_stage=stage)
    found = estimate(BERT, options, stack=STACK)
    assert found.memory_mib is not None and found.upper_mib is not None
    assert found.upper_mib > found.memory_mib
    return found.memory_mib


def step_of(sizes: list[int]) -> Recording:
    """A step that makes one gradient for each parameter, in reverse, and nothing else."""
    return Recording(tuple(sizes), (), (), tuple(reversed(sizes)), frozenset(range(len(sizes))))


def test_buckets_as_ddp_makes_them() -> None:
    assert buckets([MIB // 4] * 3) == [3 * MIB // 4]
    # Backward begins at the end: 2 MiB close the first bucket, 30 the second, the rest is the last.
    assert buckets([3 * MIB, 10 * MIB, 20 * MIB, 2 * MIB]) == [2 * MIB, 30 * MIB, 3 * MIB]
    assert buckets([]) == []


@given(SIZES)
def test_buckets_hold_every_gradient_once(sizes: list[int]) -> None:
    assert sum(buckets(sizes)) == sum(sizes)


@given(SIZES, st.integers(2, 64), st.integers(0, 3))
def test_any_step_can_be_played(sizes: list[int], count: int, stage: int) -> None:
    events = training(step_of(sizes), "adam", lambda _: 0, ranks=Ranks(count, stage)).sizes
    assert replay(events).allocated > 0
    assert spread(step_of(sizes), ALONE) == step_of(sizes)


@given(SIZES)
def test_ddp_holds_the_gradients_twice(sizes: list[int]) -> None:
    step = step_of(sizes)
    one, two = (
        replay(training(step, "sgd", lambda _: 0, ranks=ranks).sizes).allocated
        for ranks in (ALONE, Ranks(8))
    )
    # A block of the large pool may be up to 1 MiB larger than what it was asked for.
    assert abs(two - one - sum(sizes)) <= 2 * MIB * (len(sizes) + 1)


def test_each_stage_takes_less() -> None:
    gradients = BERT.trainable * 4 // MIB
    ddp, state, half, full = (mib(stage, 8) for stage in range(4))
    # Less than the gradients: buckets lie where segments had room.
    assert 0.8 * gradients < ddp - mib(0, 1) < 1.1 * gradients
    # Adam keeps 8 of its bytes a parameter at stage 0 and one at stage 1, of eight processes.
    assert ddp - state > 1.5 * gradients
    assert state > half > full > 1000 + gradients / 8
    assert mib(3, 64) < full and mib(2, 1) == mib(0, 1)


def test_a_ddp_is_as_sure_as_one_process_but_for_nccl() -> None:
    """Its buckets are known to the byte: no part of it more, whatever its size."""
    one, two = (estimate(BERT, TrainingOptions(8, world_size=n), stack=STACK) for n in (1, 2))
    margins = [((f.upper_mib or 0) - (f.memory_mib or 0)) / (f.memory_mib or 1) for f in (one, two)]
    assert one.memory_mib and two.memory_mib and two.upper_mib
    assert (two.upper_mib - NCCL_MIB - two.memory_mib) / two.memory_mib <= margins[0] * 1.02
    assert margins[1] > margins[0]


def test_what_the_user_is_told() -> None:
    found = estimate(BERT, TrainingOptions(2, world_size=4), stack=STACK)
    assert any("MiB for NCCL's buffers" in note for note in found.notes)
    zero = estimate(
        BERT, TrainingOptions(2, world_size=4, zero_stage=3), stack=STACK, estimator="deepspeed"
    )
    assert zero.memory_mib is not None and any("stage 3" in note for note in zero.notes)
    alone = estimate(BERT, TrainingOptions(2), stack=STACK, estimator="deepspeed")
    assert alone.memory_mib is not None and zero.memory_mib * 3 < alone.memory_mib


@pytest.mark.parametrize("wrong", [{"world_size": 0}, {"zero_stage": 4}, {"zero_stage": -1}])
def test_wrong_options(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageFault):
        TrainingOptions(2, **wrong)  # type: ignore[arg-type]


def test_replicas_wait_with_their_gradients() -> None:
    """An output of 4 MiB, a backward of 64, two gradients of 20: the output of two replicas is
    gathered, both sums of gradients meet those of the replica."""
    step = Recording(
        (20 * MIB, 20 * MIB), (), (), (4 * MIB, 64 * MIB, 20 * MIB, 20 * MIB, -2), frozenset({2, 3})
    )
    two = replicated(step, 2, apart=False)
    events = [event for event in two.events if isinstance(event, int)]
    assert events[:4] == [4 * MIB, 8 * MIB, -1, 64 * MIB]
    assert events[-4:] == [20 * MIB, 20 * MIB, -4, -5]
    assert two.left == [1] and two.gradients == {5, 6}
    beside = replicated(step, 2, apart=True)
    assert replay(events).allocated == (8 + 64 + 20 + 20) * MIB
    assert [event for event in beside.events if event == 4 * MIB] == [4 * MIB] * 4


@given(SIZES, st.integers(2, 8), st.booleans())
def test_sums_hold_every_gradient_once(sizes: list[int], count: int, apart: bool) -> None:
    step = replicated(step_of(sizes), count, apart)
    made = [event for event in step.events if isinstance(event, int) and event >= 0]
    sums = [made[index] for index in sorted(step.gradients)]
    assert sum(sums) == sum(sizes)
    assert all(size <= CHUNK or size in sizes for size in sums)
    assert replay(training(step, "adamw", lambda _: 0).sizes).allocated >= 2 * sum(sizes)
