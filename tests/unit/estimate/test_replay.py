# SPDX-License-Identifier: Apache-2.0
"""The caching allocator against a slow model of its rules, and the training loop on top."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.decide.optimizers import OPTIMIZERS as NAMES
from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.replay import native
from slurm_coloc.estimate.replay.allocator import (
    MIB,
    ROUND,
    Allocator,
    Rules,
    replay,
    replay_slowly,
)
from slurm_coloc.estimate.replay.margin import MARGINS, Tier, margin, upper_mib
from slurm_coloc.estimate.replay.recording import Recording, Scratch, Work
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.replay.training import OPTIMIZERS, lasting, training


@dataclass
class Segment:
    """Bytes from the driver: (start, size, owner), in order and without gaps; None owns nothing."""

    small: bool
    blocks: list[tuple[int, int, int | None]]


@dataclass
class Plain:
    """The rules of the allocator's docstring, by scanning everything for everything."""

    visible: int
    segments: list[Segment] = field(default_factory=list)
    peak: int = 0
    count: int = 0

    @property
    def reserved(self) -> int:
        return sum(size for segment in self.segments for _, size, _ in segment.blocks)

    def allocate(self, asked: int) -> bool:
        owner = self.count
        self.count += 1
        if asked == 0:
            return True
        size = (asked + ROUND - 1) // ROUND * ROUND
        small = size <= MIB
        if not self._place(small, size, owner):
            length = 2 * MIB if small else 20 * MIB
            if size >= 10 * MIB:
                length = (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            if self.reserved + length > self.visible:
                self.segments = [
                    segment
                    for segment in self.segments
                    if any(owned is not None for *_, owned in segment.blocks)
                ]
            if self.reserved + length > self.visible:
                return False
            # Addresses grow: a later segment lies higher than all before.
            self.segments.append(Segment(small, [(self.count * 2**50, length, None)]))
            assert self._place(small, size, owner)
        self.peak = max(self.peak, self.reserved)
        return True

    def _place(self, small: bool, size: int, owner: int) -> bool:
        fits = [
            (length, start, segment, place)
            for segment in self.segments
            if segment.small == small
            for place, (start, length, owned) in enumerate(segment.blocks)
            if owned is None and length >= size
        ]
        if not fits:
            return False
        length, start, segment, place = min(fits, key=lambda item: item[:2])
        rest = length - size
        if rest >= ROUND if small else rest > MIB:
            segment.blocks[place : place + 1] = [
                (start, size, owner),
                (start + size, rest, None),
            ]
        else:
            segment.blocks[place] = (start, length, owner)
        return True

    def release(self, owner: int) -> None:
        for segment in self.segments:
            blocks: list[tuple[int, int, int | None]] = []
            for start, size, owned in segment.blocks:
                freed = None if owned == owner else owned
                if blocks and freed is None and blocks[-1][2] is None:
                    blocks[-1] = (blocks[-1][0], blocks[-1][1] + size, None)
                else:
                    blocks.append((start, size, freed))
            segment.blocks = blocks


SIZES = st.one_of(
    st.integers(0, 4 * ROUND),
    st.sampled_from([MIB - 1, MIB, MIB + 1, 10 * MIB - ROUND, 10 * MIB, 2 * MIB, 3 * MIB]),
    st.integers(1, 64 * MIB),
)


@st.composite
def streams(draw: st.DrawFn) -> list[int]:
    """Allocations and frees of what is held, as replay takes them."""
    events: list[int] = []
    held: list[int] = []
    count = 0
    for _ in range(draw(st.integers(1, 60))):
        if held and draw(st.booleans()):
            events.append(-1 - held.pop(draw(st.integers(0, len(held) - 1))))
        else:
            events.append(draw(SIZES))
            held.append(count)
            count += 1
    return events


@settings(max_examples=300, deadline=None)
@given(streams(), st.sampled_from([2**63, 256 * MIB, 64 * MIB]))
def test_as_the_slow_model(events: list[int], visible: int) -> None:
    plain = Plain(visible)
    failed = None
    for position, event in enumerate(events):
        if event < 0:
            plain.release(-1 - event)
        elif not plain.allocate(event):
            failed = position
            break
    found = replay(events, Rules(visible=visible))
    assert (found.reserved, found.failed) == (plain.peak, failed)


@settings(max_examples=300, deadline=None)
@given(streams())
def test_c_and_python_agree(events: list[int]) -> None:
    found = replay_slowly(events)
    assert native.replay(events) == (found.reserved, found.allocated)


def test_c_leaves_to_python_what_it_cannot() -> None:
    """Numbers over 60 bits, and a machine without the C part."""
    for events in ([2**62, -1], [2**61] * 8, [2**70]):
        assert native.replay(events) is None
        assert replay(events) == replay_slowly(events)


def test_without_the_c_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_library", lambda: None)
    assert replay([30 * MIB, -1, 40 * MIB]).reserved == 70 * MIB


@settings(max_examples=200, deadline=None)
@given(streams(), st.booleans(), st.sampled_from([2**63, 48 * MIB, 8 * MIB]))
def test_what_holds_under_all_rules(events: list[int], expandable: bool, split: int) -> None:
    allocator = Allocator(Rules(expandable=expandable, max_split=split))
    addresses: list[int] = []
    spans: dict[int, int] = {}
    for event in events:
        if event < 0:
            allocator.release(addresses[-1 - event])
            spans.pop(addresses[-1 - event], None)
            continue
        address = allocator.allocate(event)
        assert address is not None
        if event:
            ends = address + event
            assert all(ends <= start or start + size <= address for start, size in spans.items())
            spans[address] = event
        addresses.append(address)
        assert sum(spans.values()) <= allocator.allocated <= allocator.reserved
    assert allocator.peak_reserved >= allocator.reserved
    for address in list(spans):
        allocator.release(address)
    assert allocator.allocated == 0


@settings(max_examples=100, deadline=None)
@given(streams())
def test_expandable_segments_hold_what_is_held(events: list[int]) -> None:
    """One growing segment a pool never needs more than its pages and the fragments below."""
    found = replay(events, Rules(expandable=True))
    assert found.reserved >= found.allocated
    assert found.reserved % (2 * MIB) == 0


def test_expandable_segments_grow_where_others_cannot() -> None:
    """Three of 30 MiB, freed, hold one of 90 MiB where segments may grow."""
    events = [30 * MIB] * 3 + [-1, -2, -3] + [90 * MIB]
    assert replay(events).reserved == 180 * MIB
    assert replay(events, Rules(expandable=True)).reserved < 120 * MIB


def test_a_second_free_is_refused() -> None:
    for events in ([512, -1, -1], [-1], [512, -2]):
        with pytest.raises(SummaryError, match="cannot be replayed"):
            replay(events)


def test_visible_memory_is_a_limit() -> None:
    """What is cached goes back before anything fails, and a failure names its event."""
    limit = Rules(visible=100 * MIB)
    assert replay([60 * MIB, -1, 80 * MIB], limit).failed is None
    assert replay([60 * MIB, -1, 80 * MIB], limit).reserved == 80 * MIB
    assert replay([60 * MIB, 80 * MIB], limit).failed == 1


def test_max_split_keeps_large_blocks_whole() -> None:
    """A block of max_split_size_mb or more is not cut up for a small request."""
    events = [100 * MIB, -1, 4 * MIB]
    assert replay(events).reserved == 100 * MIB
    assert replay(events, Rules(max_split=50 * MIB)).reserved == 120 * MIB


STEP = Recording(
    parameters=(4 * MIB, 4 * MIB),
    constants=(512,),
    inputs=(2 * MIB,),
    events=(8 * MIB, 16 * MIB, 4 * MIB, 4 * MIB, -1, -2),
    gradients=frozenset({2, 3}),
)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_loop_frees_nothing_twice(optimizer: str) -> None:
    found = replay(training(STEP, optimizer, Stack(0).workspace).sizes)
    assert found.allocated >= 16 * MIB


def test_state_and_copies_of_an_optimizer() -> None:
    def peak(optimizer: str) -> int:
        return replay(training(STEP, optimizer, Stack(0).workspace).sizes).allocated

    assert peak("sgd-momentum") - peak("sgd") == 8 * MIB
    assert peak("adam") - peak("sgd-momentum") >= 8 * MIB
    assert peak("adamw") == peak("adam")
    assert peak("sgd") < peak("adam8bit") < peak("sgd-momentum")


def test_moments_of_one_byte_are_no_smaller_for_a_model_in_bf16() -> None:
    """bitsandbytes makes them uint8 whatever the parameters are."""

    def states(size: int, precision: str) -> int:
        step = Recording((size,), (), (), (size,), frozenset([0]))
        return lasting(step, "adam8bit", precision) - lasting(step, "sgd", precision)

    elements = 10 * MIB
    assert states(4 * elements, "fp32") == states(2 * elements, "bf16")
    step = Recording((2 * elements,), (), (), (2 * elements,), frozenset([0]))
    played = replay(training(step, "adam8bit", Stack(0).workspace, precision="bf16").sizes)
    assert played.allocated >= 2 * (2 * elements) + 2 * elements


@pytest.mark.parametrize(
    ("optimizer", "copies"),
    [
        ("sgd", 2), ("lion", 4), ("rmsprop", 4), ("rmsprop-momentum", 6), ("adagrad", 5),
        ("adamax", 5), ("nadam", 5), ("radam", 5),
    ],
)  # fmt: skip
def test_parameters_gradients_states_and_what_the_step_makes(optimizer: str, copies: int) -> None:
    """In sizes of the model; Adagrad has gradients and roots at once."""
    sizes = (10 * MIB, 20 * MIB)
    step = Recording(sizes, (), (), sizes, frozenset(range(2)))
    found = replay(training(step, optimizer, Stack(0).workspace).sizes).allocated
    assert found == copies * 30 * MIB


def test_adafactor_makes_two_of_its_largest_parameter() -> None:
    sizes = (10 * MIB, 40 * MIB, 20 * MIB)
    step = Recording(sizes, (), (), sizes, frozenset(range(3)))
    alone, plain = (
        replay(training(step, name, Stack(0).workspace).sizes).allocated
        for name in ("adafactor", "sgd")
    )
    assert alone - plain == pytest.approx(80 * MIB, abs=2 * MIB)


def test_implementations_of_adamw() -> None:
    """foreach has the roots of all at once, a for-loop two of one parameter and the last one's."""
    sizes = (10 * MIB, 20 * MIB, 20 * MIB, 10 * MIB)
    step = Recording(sizes, (), (), sizes, frozenset(range(4)))

    def peak(optimizer: str) -> int:
        return replay(training(step, optimizer, Stack(0).workspace).sizes).allocated

    assert peak("adamw-fused") == 4 * 60 * MIB
    assert peak("adamw") - peak("adamw-fused") == 60 * MIB
    assert peak("adamw-for-loop") - peak("adamw-fused") == 3 * 20 * MIB
    assert peak("adam-for-loop") == peak("adamw-for-loop")


def test_the_output_goes_when_the_next_is_there() -> None:
    """Output of 8 MiB and loss live on; the backward of 32 MiB does not meet two outputs."""
    step = Recording((), (), (), (8 * MIB, 512, 32 * MIB, -3), frozenset())
    assert step.left == [0, 1]
    assert replay(training(step, "sgd", Stack(0).workspace).sizes).allocated == 40 * MIB + 512
    # The next output and loss are made while the last ones are held.
    step = Recording((), (), (), (8 * MIB, 512, MIB, -3), frozenset())
    assert replay(training(step, "sgd", Stack(0).workspace).sizes).allocated == 16 * MIB + 2 * 512


def test_every_optimizer_has_a_rule() -> None:
    assert tuple(OPTIMIZERS) == NAMES


def test_a_workspace_lives_while_its_convolution_runs() -> None:
    work = Scratch(Work.FORWARD, 8 * MIB, 8 * MIB, MIB, 9, 1, 64)
    step = Recording((), (), (), (work, 8 * MIB, -1), frozenset())
    events = training(step, "sgd", lambda given: given.read * 3).sizes
    assert events[:2] == [24 * MIB, -1]
    assert replay(events).allocated == 24 * MIB


def test_narrow_convolutions_take_no_workspace() -> None:
    """Of an image's three channels, and for the input's gradient where channels are few."""

    def taken(inputs: int, outputs: int, groups: int = 1) -> list[int]:
        weight = outputs * inputs // groups * 9 * 4
        stack = Stack(0)
        return [
            stack.workspace(Scratch(work, 8 * MIB, 8 * MIB, weight, 9, groups, outputs))
            for work in Work
        ]

    assert taken(3, 128) == [0, 0, 0]
    assert taken(64, 256) == taken(256, 64) == taken(4, 64) == [0, 0, 20 * MIB]
    assert taken(65, 65) == taken(512, 128) == [0, 16 * MIB, 20 * MIB]
    assert taken(256, 256, 4) == [0, 0, 10 * MIB]
    assert taken(130, 130, 2) == [0, 0, 10 * MIB]
    assert taken(64, 64, 64) == [0, 0, 0]
    # Whatever a block says.
    assert Stack(0).workspace(Scratch(Work.DATA, 8, 8, 8, 9, 0, 0)) == 0
    assert Stack(0).workspace(Scratch(Work.DATA, 8, 8, 2**60, 9, 0, 1)) >= 0


def test_workspaces_of_cublas_are_kept() -> None:
    """One before the first batch, one before the first gradient of a weight: not in later steps."""
    blas = 8 * MIB + 2**17
    bare = training(STEP, "sgd", Stack(0).workspace).sizes
    events = training(STEP, "sgd", Stack(0).workspace, blas=blas).sizes
    assert events.count(blas) == 2 and len(events) == len(bare) + 2
    assert events.index(blas) == len(STEP.parameters) + len(STEP.constants)
    assert events[events.index(blas) + 4] == blas  # after the batch and two activations
    assert replay(events).allocated == replay(bare).allocated + 2 * blas


def test_margins_rise_with_the_level_and_their_99_percent_is_the_tiers_own() -> None:
    for tier in Tier:
        assert margin(tier, 0.99) == pytest.approx(MARGINS[tier])
        found = [margin(tier, level / 1000) for level in range(500, 1000)]
        assert found == sorted(found)
        assert found[0] < MARGINS[tier] < found[-1]
    assert upper_mib(5000, 1000, Tier.TEXT, 0.9) < upper_mib(5000, 1000, Tier.TEXT)


def test_a_plain_loop_lets_the_last_batch_go_first() -> None:
    batch = STEP.inputs[0]
    for ahead in (True, False):
        events = training(STEP, "sgd", Stack(0).workspace, ahead=ahead).sizes
        first, second = (at for at, event in enumerate(events) if event == batch)
        number = sum(event >= 0 for event in events[:first])
        gone = events.index(-1 - number)
        assert (gone > second) is ahead


def test_a_smaller_last_batch_is_played_between_two_epochs() -> None:
    rest = replace(STEP, inputs=(MIB,), events=(4 * MIB, 8 * MIB, *STEP.events[2:]))
    events = training(STEP, "sgd", Stack(0).workspace, ahead=False, rest=rest).sizes
    assert [event for event in events if event in {2 * MIB, MIB}] == [
        *[2 * MIB] * 2, MIB, *[2 * MIB] * 2,
    ]  # fmt: skip
    frees = [event for event in events if event < 0]
    assert len(frees) == len(set(frees))
    # As many tensors as without it, which may not fit into what it leaves.
    plain = training(STEP, "sgd", Stack(0).workspace, ahead=False).sizes
    assert replay(events).allocated == replay(plain).allocated
    assert replay(events).reserved >= replay(plain).reserved


def test_the_loss_is_the_last_that_is_left() -> None:
    assert STEP.left == [] and STEP.loss == -1
    assert Recording((), (), (), (8 * MIB, 512, 32 * MIB, -3), frozenset()).loss == 1
