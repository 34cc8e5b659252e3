# SPDX-License-Identifier: Apache-2.0
"""--coloc-max-slowdown at submission, and what jobs keep busy alone by what is measured."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.slowdown import (
    Beside,
    Load,
    alone_s,
    limit_text,
    looking_back,
    predicted,
    smallest,
    speed,
    wishes,
    within_slowdown,
)

SHARE = Decision(Action.COLLOCATE, Reason.FITS, 6)
activities = st.floats(0.02, 1.0)


@pytest.mark.parametrize(
    ("bound", "smact", "steered", "action"),
    [
        (
            1.0,
            0.1,
            True,
            Action.EXCLUSIVE,
        ),  # a share would keep all others out
        (1.05, 0.9, True, Action.COLLOCATE),
        (1.05, 0.9, False, Action.EXCLUSIVE),
        (1.05, None, False, Action.EXCLUSIVE),
        (1.05, 0.2, False, Action.COLLOCATE),
        (4.0, None, False, Action.COLLOCATE),
    ],
)
def test_who_gets_a_whole_gpu(
    bound: float, smact: float | None, steered: bool, action: Action
) -> None:
    found = within_slowdown(SHARE, bound, smact, steered=steered)
    assert found.action is action
    if action is Action.COLLOCATE:
        assert found.max_slowdown == bound
    else:
        assert found.reason is Reason.MAX_SLOWDOWN and f"{bound:g}: " in found.why


def test_a_whole_gpu_and_a_mig_device_need_no_bound() -> None:
    for one in (Decision(Action.EXCLUSIVE, Reason.FILLS_GPU), Decision(
        Action.COLLOCATE, Reason.FITS_SLICE, gpu_type="1g.5gb", slice_mib=4864
    )):  # fmt: skip
        assert within_slowdown(one, 1.0, None, steered=False) is one


def test_the_user_is_told_what_can_be_kept() -> None:
    assert "is chosen" in limit_text(1.3, steered=True, node_gate=False)
    assert "leaves out busy nodes" in limit_text(1.3, steered=False, node_gate=True)
    assert "not kept" in limit_text(1.3, steered=False, node_gate=False)


@given(activities, activities)
def test_a_busier_neighbour_costs_no_less(mine: float, other: float) -> None:
    assert 0 < speed(mine, [other], "mps") <= 1
    assert speed(mine, [min(1.0, other + 0.2)], "mps") <= speed(mine, [other], "mps") + 1e-9
    assert smallest(mine) >= 1.0 and smallest(None) >= smallest(0.5)


@given(st.lists(activities, min_size=2, max_size=4))
def test_wishes_explain_what_is_measured(alone: list[float]) -> None:
    """From the parts that the model itself would show, and an estimate that is about right: the
    wishes again. On a full GPU never less than what is measured."""
    speeds = [speed(one, alone[:n] + alone[n + 1 :], "mps") for n, one in enumerate(alone)]
    parts = [one * fast for one, fast in zip(alone, speeds, strict=True)]
    total = min(1.0, sum(parts))
    loads = [Load(one, part, settled=True) for one, part in zip(alone, parts, strict=True)]
    found = wishes(loads, total, "mps")
    assert all(wish >= part - 1e-9 for wish, part in zip(found, parts, strict=True))
    if total < 0.9:
        assert found == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize("wrong", [0.8, 1.25, 2.0])
@pytest.mark.parametrize("alone", [(0.3, 0.3), (0.5, 0.2), (0.1, 0.1, 0.1), (0.6, 0.05)])
def test_wrong_estimates_are_put_right(alone: tuple[float, ...], wrong: float) -> None:
    speeds = [speed(one, [*alone[:n], *alone[n + 1 :]], "mps") for n, one in enumerate(alone)]
    loads = [
        Load(min(1.0, one * wrong), one * fast, settled=True)
        for one, fast in zip(alone, speeds, strict=True)
    ]
    assert wishes(loads, 0.5, "mps") == pytest.approx(list(alone), abs=0.05)


def test_what_nobody_knows_is_busy() -> None:
    assert wishes([Load(), Load(0.3)], None, "mps") == [1.0, 0.3]
    assert wishes([Load(None, 0.1), Load(0.3)], None, "mps") == [1.0, 0.3]  # it has just begun
    assert wishes([Load(0.3), Load(0.2)], 0.95, "mps") == [1.0, 1.0]  # whoever complains is right
    assert wishes([Load(0.3, sure=True), Load(0.2)], 0.95, "mps") == [0.3, 1.0]
    # measured says more than an estimate
    found = wishes([Load(0.6, 0.2, settled=True), Load(0.6, 0.1, settled=True)], 0.3, "mps")
    assert found[0] == pytest.approx(0.2, abs=0.02)


def test_neighbours_that_come_and_go() -> None:
    others = [Beside(2, 100, 200, 0.9), Beside(3, 150, None, None)]
    done = alone_s(0.9, 0, 300, others, "mps")
    alone, two = speed(0.9, [0.9], "mps"), speed(0.9, [0.9, 1.0], "mps")
    three = speed(0.9, [1.0], "mps")
    assert done == pytest.approx(100 + 50 * alone + 50 * two + 100 * three)
    assert predicted(0.9, 0, 300, others, "mps") is None  # a report guesses nothing
    assert predicted(0.9, 0, 200, others[:1], "mps") == pytest.approx(200 / (100 + 100 * alone))


def test_pairs_of_activity_are_ordered() -> None:
    found = [smallest(one / 10) for one in range(1, 11)]
    assert all(one <= other + 1e-9 for one, other in pairwise(found))


def test_looking_back_goes_by_what_was_measured() -> None:
    """Three jobs of 0.3 that are expected to keep a GPU busy: 2.6 times slower by expectation."""
    run, *others = (Beside(job, 0, 100, 0.9, part=0.25) for job in (1, 2, 3))
    by_parts = looking_back(run, others, 100, "mps")
    expected = predicted(0.9, 0, 100, others, "mps")
    assert by_parts is not None and expected is not None
    assert 1.0 < by_parts < 1.3 < 2.0 < expected
    # measured alone: its own activity; a neighbour that was not measured yet: nothing is told
    alone = replace(run, smact=0.3, part=None, alone=True)
    assert by_parts < (looking_back(alone, others, 100, "mps") or 0) < 1.3
    assert looking_back(run, [replace(others[0], part=None)], 100, "mps") is None
    # on a full GPU parts say too little
    full = [replace(one, part=0.33) for one in (run, *others)]
    assert looking_back(full[0], full[1:], 100, "mps") == pytest.approx(expected)
    assert looking_back(replace(run, end_s=0), [], 0, "mps") is None
