# SPDX-License-Identifier: Apache-2.0
"""Every cause of an end and its action; what the next try asks for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.recover.next_try import (
    VICTIMS,
    Caps,
    End,
    Held,
    Need,
    Steps,
    Tally,
    Verdict,
    Way,
    again,
    grow,
    judge,
)
from slurm_coloc.core.recover.outcome import Blame, Outcome
from slurm_coloc.core.slurm.gres import PER_TASK, count_of

OOM = End(Outcome.OOM_GPU, Blame.SELF)
HELD = Held("gres/shard:5", "gres/gpu:1", 5, 1024, 39)
NONE = Tally()
OWN = [Blame.SELF, Blame.FRAGMENTATION, Blame.UNKNOWN, None]


def verdict(end: End = OOM, tally: Tally = NONE, **changes: bool) -> Verdict:
    may = {"may_requeue": True, "enabled": True, **changes}
    return judge(end, tally=tally, caps=Caps(2, 50, 500, 3), **may)


@pytest.mark.parametrize("outcome", [Outcome.OOM_GPU, Outcome.OVERRUN])
@pytest.mark.parametrize("whose", OWN)
def test_its_own_need_is_met(outcome: Outcome, whose: Blame | None) -> None:
    assert verdict(End(outcome, whose)) is Verdict.REQUEUE
    assert verdict(End(outcome, whose, shared=False)) is Verdict.DOES_NOT_FIT
    assert verdict(End(outcome, whose), tally=Tally(own=2)) is Verdict.JOB_CAP


def test_caps_on_its_own_need() -> None:
    assert verdict(tally=Tally(own=1)) is Verdict.REQUEUE
    assert verdict(tally=Tally(own=2)) is Verdict.JOB_CAP
    assert verdict(tally=Tally(user_day=50)) is Verdict.USER_CAP
    assert verdict(tally=Tally(day=500)) is Verdict.CLUSTER_CAP
    assert verdict(may_requeue=False) is Verdict.NO_REQUEUE
    assert verdict(enabled=False) is Verdict.SWITCHED_OFF
    assert verdict(End(Outcome.OOM_GPU, Blame.SELF, placed=False)) is Verdict.NOT_OURS


@pytest.mark.parametrize("whose", sorted(VICTIMS))
@pytest.mark.parametrize("outcome", [Outcome.OOM_GPU, Outcome.FAILED])
def test_victims_are_put_back_outside_the_caps(outcome: Outcome, whose: Blame) -> None:
    end = End(outcome, whose)
    full = Tally(own=9, user_day=99, day=999)
    assert verdict(end, full) is Verdict.VICTIM
    assert verdict(end, full, may_requeue=False) is Verdict.NO_REQUEUE
    assert verdict(end, full, enabled=False) is Verdict.SWITCHED_OFF
    # After its tries a whole GPU, and there that is the end.
    assert verdict(end, Tally(cause=3)) is Verdict.VICTIM
    assert verdict(End(outcome, whose, shared=False), Tally(cause=2)) is Verdict.VICTIM
    assert verdict(End(outcome, whose, shared=False), Tally(cause=3)) is Verdict.VICTIM_CAP


def test_all_other_ends_are_left_alone() -> None:
    for outcome in Outcome:
        if outcome not in (Outcome.OOM_GPU, Outcome.OVERRUN):
            assert verdict(End(outcome)) is Verdict.NOT_OURS
        if outcome not in (Outcome.OOM_GPU, Outcome.OVERRUN, Outcome.FAILED):
            assert verdict(End(outcome, Blame.NEIGHBOUR)) is Verdict.NOT_OURS


@pytest.mark.parametrize(
    ("need", "tres"),
    [
        (Need(5000), "gres/shard:10"),  # last + 5 GiB
        (Need(12000), "gres/shard:15"),  # 1.25 x the measured peak
        (Need(4900, 5000, 7500), "gres/shard:16"),  # 1.25 x (held + requested)
        (Need(held_mib=5000), "gres/shard:10"),
        (Need(31000), "gres/shard:38"),
        (Need(32000), "gres/gpu:1"),  # all that a GPU has
        (Need(), "gres/gpu:1"),  # nobody knows
        (Need(requested_mib=2048), "gres/gpu:1"),  # nor here
    ],
)
def test_the_size_of_a_step(need: Need, tres: str) -> None:
    way, found = grow(HELD, need, Steps(), 2)
    assert found == tres
    assert way is (Way.WHOLE if "gpu" in tres else Way.MORE)


def test_after_the_steps_and_at_the_last_try_a_whole_gpu() -> None:
    need = Need(5000)
    grown = Held("gres/shard:10", "gres/gpu:1", 10, 1024, 39, grown=1)
    assert grow(grown, need, Steps(), 9) == (Way.WHOLE, "gres/gpu:1")
    assert grow(grown, need, Steps(most=2), 9) == (Way.MORE, "gres/shard:15")
    assert grow(HELD, need, Steps(), 1) == (Way.WHOLE, "gres/gpu:1")
    assert grow(HELD, need, Steps(most=0), 2) == (Way.WHOLE, "gres/gpu:1")
    on_mig = Held("gres/gpu:1g.5gb:1", "gres/gpu:a100:1", 0, 4864, 1)
    assert grow(on_mig, need, Steps(), 2) == (Way.WHOLE, "gres/gpu:a100:1")


def test_kind_other_gres_and_tasks_stay() -> None:
    held = Held("gres/shard:a100:5,gres/fpga:1", "gres/gpu:a100:1", 5, 1024, 39)
    assert grow(held, Need(5000), Steps(), 2)[1] == "gres/shard:a100:10,gres/fpga:1"
    each = Held(f"{PER_TASK}gres/shard:5", f"{PER_TASK}gres/gpu:1", 5, 1024, 39)
    assert grow(each, Need(5000), Steps(), 2)[1] == f"{PER_TASK}gres/shard:10"


def test_a_victim_asks_for_the_same_and_then_for_a_whole_gpu() -> None:
    caps = Caps(per_cause=3)
    assert again(HELD, Tally(cause=2, own=7), caps) == (Way.SAME, "gres/shard:5")
    assert again(HELD, Tally(cause=3), caps) == (Way.WHOLE, "gres/gpu:1")
    whole = Held("gres/gpu:1", "gres/gpu:1", 0, 1024, 39)
    assert again(whole, Tally(cause=3), caps) == (Way.SAME, "gres/gpu:1")


@given(
    shards=st.integers(1, 38),
    per_gpu=st.integers(0, 80),
    grown=st.integers(0, 5),
    need=st.builds(
        Need,
        st.none() | st.integers(0, 200_000),
        st.none() | st.integers(0, 200_000),
        st.none() | st.integers(0, 2**26),
    ),
    left=st.integers(0, 5),
)
def test_it_always_grows_and_never_asks_for_more_than_a_gpu_has(
    shards: int, per_gpu: int, grown: int, need: Need, left: int
) -> None:
    """A job that asks for more shards than a GPU has would wait for ever."""
    held = Held(f"gres/shard:{shards}", "gres/gpu:1", shards, 1024, per_gpu, grown)
    way, tres = grow(held, need, Steps(most=3), left)
    if way is Way.MORE:
        assert shards < (count_of(tres, "shard") or 0) < per_gpu
        assert grown < 3 and left > 1
    else:
        assert tres == "gres/gpu:1"
