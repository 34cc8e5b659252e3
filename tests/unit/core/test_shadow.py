# SPDX-License-Identifier: Apache-2.0
"""The cluster in which nobody shares: it bounds what a plan may let a job wait."""

from dataclasses import replace

import pytest

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest, Resident
from slurm_coloc.core.place.steering import Waiting
from slurm_coloc.planning.shadow import Shadow
from slurm_coloc.planning.snapshot import PRIOR_S
from tests.unit.core.test_steering import waiting


def job(job_id: int, run_s: float | None = 100.0, gpus: int = 1) -> Waiting:
    """A waiting job that is expected to run so long."""
    return replace(waiting(job_id), expected_s=run_s, gpus=gpus)


def slots(
    *there: tuple[int, ...], run_s: float = 100.0, end_s: float | None = None
) -> list[GpuSlot]:
    """One GPU for each group of running jobs."""
    found = []
    for index, ids in enumerate(there):
        slot = GpuSlot(index, 0, "a100", 40960)
        width = {one: sum(one in other for other in there) for one in ids}
        slot.residents += [
            Resident(PlaceRequest(one, width[one], 1024, None, 0.0, run_s=run_s), end_s)
            for one in ids
        ]
        found.append(slot)
    return found


def test_each_has_a_gpu_of_its_own_in_slurm_s_order() -> None:
    found = Shadow().starts(0.0, [job(1), job(2, 50.0), job(3), job(4)], slots((), ()))
    assert found == {1: 0.0, 2: 0.0, 3: 50.0, 4: 100.0}


def test_nobody_passes_one_that_waits_for_two() -> None:
    found = Shadow().starts(0.0, [job(1), job(2, gpus=2), job(3)], slots((), ()))
    assert found == {1: 0.0, 2: 100.0, 3: 200.0}


def test_who_started_early_beside_another_has_its_turn_there() -> None:
    """Else sharing would bring forward the time at which the next ones may wait no longer."""
    shadow = Shadow()
    assert shadow.starts(0.0, [job(1), job(2), job(3)], slots(())) == {1: 0.0, 2: 100.0, 3: 200.0}
    assert shadow.starts(10.0, [job(3), job(4)], slots((1, 2))) == {3: 200.0, 4: 300.0}
    assert shadow.starts(150.0, [job(4)], slots((3,))) == {4: 300.0}, "1 and 2 have ended"


def test_what_is_learned_of_times_moves_the_starts() -> None:
    shadow = Shadow()
    assert shadow.starts(0.0, [job(1, None), job(2)], slots(()))[2] == 100.0, "like the others"
    assert shadow.starts(10.0, [job(1, 400.0), job(2)], slots(()))[2] == 400.0
    assert Shadow().starts(0.0, [job(1, None), job(2, None)], slots(()))[2] == PRIOR_S


def test_who_left_the_queue_without_a_run_makes_room() -> None:
    shadow = Shadow()
    shadow.starts(0.0, [job(1), job(2), job(3)], slots(()))
    assert shadow.starts(10.0, [job(3)], slots((1,))) == {3: 100.0}


def test_a_job_that_slurm_puts_first_is_first_there() -> None:
    """Not before one that would run by now."""
    shadow = Shadow()
    shadow.starts(0.0, [job(1), job(2)], slots(()))
    assert shadow.starts(10.0, [job(3), job(1), job(2)], slots(())) == {1: 0.0, 3: 100.0, 2: 200.0}


def test_it_begins_with_what_runs() -> None:
    shadow = Shadow()
    assert shadow.starts(0.0, [job(9)], slots((1, 2), end_s=70.0)) == {9: 70.0}
    assert shadow.starts(20.0, [job(9)], slots((1,), end_s=90.0)) == {9: 70.0}
    # Slurm started 5 by itself before colocd saw it wait.
    assert shadow.starts(30.0, [job(9), job(8)], slots((1, 5), end_s=90.0)) == {9: 70.0, 8: 270.0}


def test_it_forgets_who_has_ended() -> None:
    shadow = Shadow()
    for number in range(1, 50):
        now_s = number * 100.0
        shadow.starts(now_s, [job(number)], slots((number - 1,) if number > 1 else ()))
    assert len(shadow._jobs) < 5 and len(shadow._before) < 5


def test_behind_a_job_that_takes_weeks_it_forgets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_coloc.planning.shadow.MOST", 10)
    shadow = Shadow()
    shadow.starts(0.0, [job(1, 1e6)], slots((), ()))
    for number in range(2, 50):
        now_s = (number - 2) * 100.0
        found = shadow.starts(
            now_s, [job(number)], slots((1,), (number - 1,) if number > 2 else ())
        )
        assert found == {number: now_s}, "on the other GPU"
    assert len(shadow._jobs) <= 11


def test_with_other_gpus_it_begins_anew() -> None:
    shadow = Shadow()
    shadow.starts(0.0, [job(1), job(2)], slots(()))
    assert shadow.starts(10.0, [job(1), job(2)], slots((), ())) == {1: 10.0, 2: 10.0}
