# SPDX-License-Identifier: Apache-2.0
"""When a job holds more than it was promised."""

from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.gpu.overrun import IN_A_ROW, NEAR_S, Change, Watch, beyond_contexts

CONTEXT, PROMISED = 1900, 5120
processes = st.lists(st.integers(0, 40_000), max_size=8)


def watch(samples: list[list[int]], step_s: float = 1.0) -> list[Change]:
    one = Watch()
    found = [one.see(100 + n * step_s, held, PROMISED, CONTEXT) for n, held in enumerate(samples)]
    return [change for change in found if change]


def test_three_samples_in_a_row() -> None:
    over, fine = [29_300], [5000]
    assert watch([over, over, fine, over, over, fine]) == []
    assert watch([fine, over, over, over, over]) == [Change("begun", 101.0, 29_300, PROMISED)]


def test_it_is_over_after_as_many_and_at_once_where_nothing_is_held() -> None:
    over, more, fine = [20_000], [29_300], [5000]
    begun, end = watch([over, over, over, more, fine, over, fine, fine, fine])
    assert (begun.state, begun.held_mib) == ("begun", 20_000)
    assert (end.state, end.held_mib) == ("over", 29_300)
    assert [one.state for one in watch([over, over, over, []])] == ["begun", "over"]


def test_samples_that_are_far_apart_are_no_row() -> None:
    assert watch([[29_300]] * 9, step_s=NEAR_S + 0.5) == []


def test_a_context_for_each_process_and_none_for_an_empty_one() -> None:
    at_the_fence = [PROMISED // 2 + CONTEXT] * 2
    assert watch([at_the_fence] * 9) == []
    dummies = [1] * 20
    assert watch([[PROMISED + CONTEXT + 1, *dummies]] * 9) != []


@given(processes, st.integers(0, 40_000), st.integers(0, 4000))
def test_what_a_process_may_hold_beyond(held: list[int], promised: int, context: int) -> None:
    """Never more than the sum above the promise, and at least that less a context each."""
    beyond = beyond_contexts(held, context)
    assert sum(held) - len(held) * context <= beyond <= sum(held)
    if context:
        assert beyond_contexts([*held, 1], context) == beyond, "an empty process changes nothing"


@given(st.lists(processes, max_size=40))
def test_begin_and_end_take_turns(samples: list[list[int]]) -> None:
    changes = watch(samples)
    states = [one.state for one in changes]
    assert states == ["begun", "over"] * (len(states) // 2) + ["begun"] * (len(states) % 2)
    for begun, over in zip(changes[::2], changes[1::2], strict=False):
        assert begun.since_s == over.since_s and over.held_mib >= begun.held_mib


@given(st.lists(st.integers(0, PROMISED + CONTEXT), min_size=1, max_size=60))
def test_a_process_within_its_promise_and_a_context_is_none(held: list[int]) -> None:
    assert watch([[one] for one in held]) == []


@given(st.lists(processes, max_size=40))
def test_it_begins_only_after_a_row_above(samples: list[list[int]]) -> None:
    one, row = Watch(), 0
    for n, held in enumerate(samples):
        row = row + 1 if beyond_contexts(held, CONTEXT) > PROMISED else 0
        change = one.see(float(n), held, PROMISED, CONTEXT)
        if change and change.state == "begun":
            assert row >= IN_A_ROW
        if row >= IN_A_ROW:
            assert one.now is not None
