# SPDX-License-Identifier: Apache-2.0
"""What sbatch prints: every reason on one line of 80 columns, without a word of ours."""

import pytest

from slurm_coloc.core.decide.decision import (
    BY_USER,
    HISTORY,
    Action,
    Decision,
    Estimate,
    Reason,
)
from slurm_coloc.core.decide.slowdown import limit_text
from slurm_coloc.flow.submit.decide import NO_REQUEUE, UNPINNED
from slurm_coloc.flow.submit.message import BEFORE, BRIEF, COLUMNS, ROOM, fitted, line_of

TEXT = Estimate("text", 5349, 6138)


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("action", [Action.EXCLUSIVE, Action.ASIS])
def test_every_reason_fits_whole(reason: Reason, action: Action) -> None:
    line = line_of(Decision(action, reason), None, 1024, learned=False)
    assert len(BEFORE + line) <= COLUMNS and not line.endswith("...")
    assert "-" not in reason.value or f" {reason.value}" not in line
    assert line.startswith(("whole GPU: ", "unchanged: "))


def test_brief_words_are_for_what_does_not_fit_or_says_it_twice() -> None:
    twice = {Reason.FILLS_GPU, Reason.BAD_SUMMARY, Reason.NO_ESTIMATE}
    room = ROOM - len("whole GPU: ")
    assert all(len(reason.text) > room or reason in twice for reason in BRIEF if len(reason.text))


@pytest.mark.parametrize(
    ("estimate", "learned", "said"),
    [
        (TEXT, False, "shares a GPU: 6.0 of 39.0 GiB (estimate 5.2, at most 6.0)"),
        (TEXT, True, "shares a GPU: 6.0 of 39.0 GiB (earlier runs: 5.2, at most 6.0)"),
        (Estimate(HISTORY, 5349, 6138), True, "(earlier runs: at most 6.0)"),
        (Estimate(BY_USER, 6000, 6000), False, "(as --coloc-memory says)"),
    ],
)
def test_a_share(estimate: Estimate, learned: bool, said: str) -> None:
    share = Decision(Action.COLLOCATE, Reason.FITS, 6, shards_per_gpu=39)
    assert line_of(share, estimate, 1024, learned=learned).endswith(said)


def test_several_gpus_a_mig_device_and_large_cards_fit() -> None:
    several = Decision(Action.COLLOCATE, Reason.FITS, 140, shards_per_gpu=190, gpus=8)
    large = Estimate("text", 143_000, 150_123)
    line = line_of(several, large, 1024, learned=False)
    assert line == "shares 8 GPUs: 140.0 of 190.0 GiB each (at most 146.6)"
    mig = Decision(Action.COLLOCATE, Reason.FITS_SLICE, gpu_type="a100_3g.20gb", slice_mib=19_968)
    assert line_of(mig, TEXT, 1024, learned=False) == (
        "gets a MIG device a100_3g.20gb, 19.5 GiB (at most 6.0)"
    )


def test_what_is_said_beside_it_fits() -> None:
    why = ("it is no batch job", "--no-requeue", "this Slurm gives no more")
    lines = [UNPINNED, *(f"{NO_REQUEUE}: {one}" for one in why)]
    ways = ((True, False), (False, True), (False, False))
    lines += [limit_text(1.25, steered=steered, node_gate=gate) for steered, gate in ways]
    assert [line for line in lines if fitted(line) != line] == []


def test_a_long_detail_is_cut() -> None:
    bad = Decision(Action.EXCLUSIVE, Reason.BAD_SUMMARY, detail="x" * 200)
    line = line_of(bad, None, 1024, learned=False)
    assert len(line) == ROOM and line.startswith("whole GPU: bad summary: xxx")


@pytest.mark.parametrize(
    "detail",
    ["several nodes share only one GPU of each", "with several GPUs only jobs of sbatch share"],
)
def test_why_several_gpus_are_not_shared_is_not_cut(detail: str) -> None:
    line = line_of(
        Decision(Action.EXCLUSIVE, Reason.MULTI_GPU, detail=detail), None, 1024, learned=False
    )
    assert line == f"whole GPU: {detail}" and len(line) <= ROOM
