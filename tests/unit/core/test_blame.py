# SPDX-License-Identifier: Apache-2.0
"""Whose fault an out-of-memory was, what a run used, and words of a fault in a log."""

from typing import Any

import pytest

from slurm_coloc.core.gpu import usage
from slurm_coloc.core.recover.faults import find_fault
from slurm_coloc.core.recover.outcome import Blame, OomSnapshot, at_fence, blame


def last(held: int, foreign: int = 0, **neighbours: int) -> dict[str, Any]:
    beside = [{"job_id": int(name[1:]), "held_mib": mib} for name, mib in neighbours.items()]
    return {"at_s": 100.0, "held_mib": held, "neighbours": beside, "foreign_mib": foreign}


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
        # behind a fence of its own neither can have hurt it
        (OomSnapshot(12288, True, last(12200, foreign=9000)), Blame.SELF, "held 11.9 GiB"),
        (OomSnapshot(12288, True, last(11000), requested_mib=2000), Blame.SELF, "asked for more"),
        (
            OomSnapshot(12288, True, last(9000), requested_mib=2000),
            Blame.FRAGMENTATION,
            "in one piece",
        ),
        (  # it went on growing after the last sample
            OomSnapshot(12288, True, last(9000), requested_mib=2000, in_use_mib=11000),
            Blame.SELF,
            "held 10.7 GiB and asked for more",
        ),
        (OomSnapshot(0, False, last(39000)), Blame.SELF, "on a whole GPU"),
    ],
)
def test_blame(scene: OomSnapshot, who: Blame, word: str) -> None:
    found, why = blame(scene)
    assert found is who and word in why


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
