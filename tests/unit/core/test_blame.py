# SPDX-License-Identifier: Apache-2.0
"""Whose fault an out-of-memory was, what a run used, and words of a fault in a log."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.gpu import usage
from slurm_coloc.core.recover.faults import find_fault
from slurm_coloc.core.recover.next_try import VICTIMS
from slurm_coloc.core.recover.outcome import Blame, Cause, OomSnapshot, at_fence, blame


def last(held: int, foreign: int = 0, free: int | None = None, **neighbours: int) -> dict[str, Any]:
    beside = [{"job_id": int(name[1:]), "held_mib": mib} for name, mib in neighbours.items()]
    found = {"at_s": 100.0, "held_mib": held, "neighbours": beside, "foreign_mib": foreign}
    return found if free is None else found | {"gpu_free_mib": free}


@pytest.mark.parametrize(
    ("scene", "who", "word"),
    [
        (OomSnapshot(12288, True, mps_fault=True), Blame.MPS_FAULT, "server"),
        (OomSnapshot(12288, True, broken="Xid 48"), Blame.HARDWARE, "Xid 48"),
        (OomSnapshot(12288, True), Blame.SELF, "its own limit of 12.0 GiB"),
        (OomSnapshot(12288, False), Blame.UNKNOWN, "nothing was measured"),
        (OomSnapshot(12288, False, last(20000)), Blame.SELF, "held 19.5 GiB of 12.0 GiB"),
        (
            OomSnapshot(12288, False, last(8000, j9=25000), {9: 12288}),
            Blame.NEIGHBOUR,
            "job 9 held 12.4 GiB more",
        ),
        # nobody promised anything to job 9 (not ours): its memory is no overrun that we know of
        (OomSnapshot(12288, False, last(8000, j9=25000)), Blame.UNKNOWN, "held 7.8 GiB"),
        (OomSnapshot(12288, False, last(8000, foreign=9000)), Blame.FOREIGN, "no job held 8.8 GiB"),
        # at its own fence, whoever else is there
        (OomSnapshot(12288, True, last(12200, foreign=9000)), Blame.SELF, "held 11.9 GiB"),
        # Two users on one GPU: MPS held the one, and nothing the other, who filled the card.
        (
            OomSnapshot(10240, True, last(4813, free=350, j9=35533), {9: 6144}, requested_mib=512),
            Blame.NEIGHBOUR,
            "job 9 held 28.7 GiB more",
        ),
        # The same with a process of no job; PyTorch's own line says what others hold.
        (
            OomSnapshot(
                10240,
                True,
                last(600, free=300, foreign=38605),
                requested_mib=1024,
                free_mib=120,
                capacity_mib=40540,
                others_mib=38605,
            ),
            Blame.FOREIGN,
            "no job held 37.7 GiB",
        ),
        (OomSnapshot(12288, True, last(11000), requested_mib=2000), Blame.SELF, "asked for more"),
        (
            OomSnapshot(12288, True, last(9000), requested_mib=2000),
            Blame.FRAGMENTATION,
            "in one piece",
        ),
        (  # it went on growing after the last sample
            OomSnapshot(12288, True, last(9000), requested_mib=2000, in_use_mib=11000),
            Blame.SELF,
            "held 10.7 GiB of 12.0 GiB promised and asked for more",
        ),
        (OomSnapshot(0, False, last(39000)), Blame.SELF, "on a whole GPU"),
    ],
)
def test_blame(scene: OomSnapshot, who: Blame, word: str) -> None:
    found = blame(scene)
    assert found.blame is who and word in found.why


CARD = 40540


@st.composite
def moments(draw: st.DrawFn, *, wanted: str, room: bool, fenced: bool | None = None) -> OomSnapshot:
    """A moment on a card that holds what all hold. ``wanted``: what the run held and asked for,
    ``within`` its share or ``above`` it; ``room``: the card had what it asked for."""
    share = draw(st.integers(4096, 20480))
    asked = draw(st.integers(64, 4096))
    limit = max(0, share - asked - 100)
    above = st.integers(min(limit + 200, share), share)
    held = draw(st.integers(0, limit) if wanted == "within" else above)
    free = draw(st.integers(asked, 2 * asked) if room else st.integers(0, asked - 1))
    left = max(0, CARD - held - free)
    foreign = draw(st.integers(0, left))
    one = draw(st.integers(0, left - foreign))
    jobs = {8: one, 9: left - foreign - one}
    sampled = {
        "at_s": 100.0,
        "held_mib": held,
        "gpu_free_mib": free,
        "foreign_mib": foreign,
        "neighbours": [
            {"job_id": job, "held_mib": mib, "processes": draw(st.integers(1, 3))}
            for job, mib in jobs.items()
            if mib
        ],
    }
    promised = {
        job: draw(st.integers(1024, 20480)) for job in draw(st.sets(st.sampled_from([8, 9])))
    }
    log = {"free_mib": free, "capacity_mib": CARD, "in_use_mib": held}
    return OomSnapshot(
        share,
        draw(st.booleans()) if fenced is None else fenced,
        sampled,
        promised,
        requested_mib=asked,
        **draw(st.sampled_from([log, {}])) if fenced is None or fenced else log,
    )


def foreign_mib(moment: OomSnapshot) -> int:
    return moment.sampled("foreign_mib") or 0


def over(moment: OomSnapshot) -> dict[int, int]:
    """What each neighbour of known promise held above it."""
    promised = moment.promised or {}
    return {
        job: one["held_mib"] - promised[job]
        for one in moment.neighbours
        if (job := one["job_id"]) in promised and one["held_mib"] > promised[job]
    }


@given(moments(wanted="within", room=False, fenced=True))
def test_a_fenced_run_within_its_share_on_a_full_gpu_is_a_victim(moment: OomSnapshot) -> None:
    found = blame(moment)
    assert found.blame in VICTIMS, found
    if found.blame is Blame.NEIGHBOUR:
        assert found.culprit is not None
        assert found.culprit.over_mib == max(over(moment).values()) >= foreign_mib(moment)
    elif found.blame is Blame.FOREIGN:
        most = max(over(moment).values(), default=0)
        assert foreign_mib(moment) > most or most <= 512 * 3


@given(moments(wanted="above", room=False))
def test_a_run_that_asks_for_more_than_its_share_is_its_own_cause(moment: OomSnapshot) -> None:
    assert blame(moment).blame is Blame.SELF


@given(moments(wanted="above", room=True, fenced=True))
def test_a_run_at_its_own_fence_with_memory_left_is_its_own_cause(moment: OomSnapshot) -> None:
    assert blame(moment).blame is Blame.SELF


@given(moments(wanted="within", room=True, fenced=False))
def test_nobody_else_is_blamed_where_the_gpu_had_room(moment: OomSnapshot) -> None:
    assert blame(moment).blame is Blame.FRAGMENTATION


@given(moments(wanted="within", room=False))
def test_nobody_is_named_who_held_what_was_promised(moment: OomSnapshot) -> None:
    found = blame(moment)
    assert (found.culprit is not None) is (found.blame is Blame.NEIGHBOUR)
    if found.culprit:
        assert found.culprit.job_id in over(moment)


def test_a_fenced_run_that_was_never_seen_to_hold_memory() -> None:
    """It met a full card at its first step: the log alone tells, and names nobody."""
    log = OomSnapshot(10240, True, None, requested_mib=512, free_mib=31, capacity_mib=CARD)
    assert blame(log).blame is Blame.FULL
    seen = OomSnapshot(10240, True, last(0, free=100, j9=35533), {9: 6144})
    assert blame(seen) == Cause(
        Blame.NEIGHBOUR, "job 9 held 28.7 GiB more than it was promised", (9, 35533, 6144)
    )


def test_a_free_figure_that_is_the_fences_own() -> None:
    """Under a fence a program may be shown the share as the card: that says nothing of the GPU."""
    moment = OomSnapshot(
        12288, True, last(11000, free=20000), requested_mib=1200, free_mib=600, capacity_mib=12288
    )
    assert blame(moment).blame is Blame.FRAGMENTATION


def test_a_whole_gpu_that_a_stranger_filled() -> None:
    filled = OomSnapshot(0, False, last(9000, free=40, foreign=31500), requested_mib=512)
    assert blame(filled).blame is Blame.FOREIGN
    # It would not have fitted without the stranger either.
    large = OomSnapshot(0, False, last(39000, free=40, foreign=1500), requested_mib=4096)
    assert blame(large).blame is Blame.SELF


def test_several_processes_have_a_context_each() -> None:
    sample = last(3000, free=10, j9=7900)
    sample["neighbours"][0]["processes"] = 4
    moment = OomSnapshot(8192, True, sample, {9: 6144}, requested_mib=512)
    assert blame(moment).blame is Blame.FULL
    # Its agent saw it above its fence: no allowance then.
    moment = OomSnapshot(8192, True, sample, {9: 6144}, 512, overran=frozenset({9}))
    assert blame(moment).blame is Blame.NEIGHBOUR


@pytest.mark.parametrize(
    ("held", "limit", "ended_s", "there"),
    [
        (12200, 12288, 101.0, True),
        (12100, 12288, 101.0, False),
        (12200, 12288, 106.0, False),  # seen too long before
        (12200, 0, 101.0, False),
        (72500, 73000, 101.0, True),
    ],
)
def test_at_its_fence(held: int, limit: int, ended_s: float, there: bool) -> None:
    assert at_fence(last(held), limit, ended_s) is there


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: CUDA error: unspecified launch failure", "device"),
        ("CUDA error: an illegal memory access was encountered", "device"),
        ("cudaErrorMpsClientTerminated: the MPS client has been terminated", "mps"),
        ("CUDA_ERROR_MPS_CONNECTION_FAILED", "mps"),
        ("CUDA error: MPS client failed to connect to the MPS control daemon", "mps"),
        ("launch failure of the rocket; illegal move; mps", None),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", None),
    ],
)
def test_words_of_a_fault(text: str, kind: str | None) -> None:
    found = find_fault(f"epoch 1\n{text}\nbye\n")
    assert (found[0] if found else None) == kind


def record(**gpu: Any) -> dict[str, Any]:
    return {"since_s": 100.0, "gpus": [{"uuid": "GPU-1", "peak_mib": 9000, **gpu}]}


def test_own_peak() -> None:
    one = record()
    assert usage.own_peak([one], 99.0, 500.0) == usage.OwnPeak(9000, whole=True)
    assert usage.own_peak([one], 20.0, 500.0) == usage.OwnPeak(9000, whole=False)
    assert usage.own_peak([one, record(peak_mib=9500)], 99.0, 500.0) == usage.OwnPeak(9500, True)
    assert usage.own_peak([], 99.0, 500.0) is None
    assert usage.own_peak([record(peak_mib=0)], 99.0, 500.0) is None


def test_totals() -> None:
    found = usage.totals(
        [
            {**record(smact_mean=0.4, smact_how="alone", energy_j=10.0), "why": {"smocc": "no"}},
            {
                **record(smact_mean=0.6, smact_how="split", energy_j=None),
                "neighbours": [{"job_id": 7}, {"job_id": 7}],
            },
        ]
    )
    assert found == usage.Totals(0.5, "split", 10.0, 1, "no")
    assert usage.totals([]) == usage.Totals(None, "", None, 0, "")


JAX = [400, 30720, 30720, 30715, 30720, 30720]


def whole(*memory: int | None, total: int | None = 40960) -> dict[str, Any]:
    gpu = {"uuid": "GPU-1", "peak_mib": max(mib or 0 for mib in memory), "total_mib": total}
    return {"gpus": [gpu], "series": {"start_s": 1.0, "step_s": 5, "memory_mib": list(memory)}}


@pytest.mark.parametrize(
    ("record", "taken"),
    [
        (whole(*JAX), True),
        (whole(None, 0, *JAX, 0), True),
        (whole(39800), True),
        (whole(*JAX, total=None), False),  # how large the card is was not told
        (whole(400, 25000, 25000, 25000), False),  # 61 %
        (whole(400, 9000, 20000, 28000, 30720), False),  # it grew
        ({"gpus": [], "series": None}, False),
    ],
)
def test_a_framework_that_took_the_card_at_once(record: dict[str, Any], taken: bool) -> None:
    assert usage.taken_at_once([record]) is taken
