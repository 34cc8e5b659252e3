# SPDX-License-Identifier: Apache-2.0
"""Whose a process was that no sample met: the driver's list says when it ran, not for whom."""

import time
from typing import Any

import pytest

from slurm_coloc.core.gpu.peak import Use
from slurm_coloc.core.gpu.telemetry.reading import Held, Profile, Reading
from slurm_coloc.core.gpu.telemetry.use import RunUse
from slurm_coloc.flow.measure.driver_accounting import Accounting

GPU = "GPU-5a3b1c2d-0000-1111-2222-333344445555"
NOW_S = time.time()
BRIEF = Use(1190, NOW_S - 1.0, NOW_S - 0.5, 34_200)


class Driver:
    """NVML's accounting of one GPU, its two calls."""

    def accounted_pids(self, uuid: str) -> list[int]:
        assert uuid == GPU
        return [BRIEF.pid]

    def accounted(self, uuid: str, pids: set[int]) -> list[Use]:
        return [BRIEF] if BRIEF.pid in pids else []


@pytest.fixture
def accounting() -> Accounting:
    return Accounting(Driver())  # type: ignore[arg-type]


def run_of(job_id: int) -> RunUse:
    return RunUse(job_id, 0, NOW_S - 30)


def peaks(run: RunUse) -> list[tuple[int, int]]:
    return [(one["pid"], one["peak_mib"]) for one in run.record()["pids"]]


def test_it_is_the_run_s_that_was_alone(accounting: Accounting) -> None:
    stays = run_of(7)
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == [(BRIEF.pid, BRIEF.peak_mib)]
    assert stays.record()["complete"]


def test_it_may_have_been_that_of_one_that_left(accounting: Accounting) -> None:
    """The other's peak would be learned for this model, and shared by nobody again."""
    stays = run_of(7)
    accounting.meet(GPU, [stays, run_of(8)])
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == []
    assert not stays.record()["complete"], "nor is it known that it was not"


def test_an_agent_that_began_anew_knows_from_the_records(accounting: Accounting) -> None:
    stays, left = run_of(7), run_of(8)
    accounting.know({**left.record(), "gpus": [{"uuid": GPU}]})
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == []


def test_who_left_long_before_had_none_of_it(
    accounting: Accounting, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = run_of(7)
    accounting.meet(GPU, [stays, run_of(8)])
    monkeypatch.setattr(time, "time", lambda: NOW_S - 10)
    accounting.meet(GPU, [stays], at_s=NOW_S)
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == [(BRIEF.pid, BRIEF.peak_mib)]


def test_a_long_run_counts_beside_quick_neighbours(accounting: Accounting) -> None:
    """Its own process was in every sample, so its own samples tell what it held."""
    stays = RunUse(7, 0, NOW_S - 120)
    own = Held(800, NOW_S - 119, 3000, 7)
    for ago_s in range(118, -1, -1):
        gpu = Reading(GPU, "A100", 40960, 30000, (own,), Profile())
        stays.add(NOW_S - ago_s, [gpu], {}, {})
    accounting.meet(GPU, [stays, run_of(8)])
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == [(800, 3000)]
    assert stays.record()["complete"]


def test_a_run_whose_gpus_nobody_knows_yet_may_own_it(accounting: Accounting) -> None:
    stays = run_of(7)
    accounting.meet(GPU, [stays], unknown=[run_of(8)])
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == []


def unmet(uuid: str = GPU, began_s: float = NOW_S - 1.2) -> dict[str, Any]:
    """What the Epilog leaves of a run that the agent never met."""
    run = RunUse(8, 0, began_s)
    run.until_s = began_s + 0.8
    return {**run.record(), "gpus": [{"uuid": uuid}]}


def test_it_may_have_been_that_of_one_that_came_and_went_itself() -> None:
    """A neighbour that ran out of memory within its first second gave this run's model its peak."""
    stays = run_of(7)
    accounting = Accounting(Driver(), lambda: [stays.record(), unmet()])  # type: ignore[arg-type]
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == []
    assert not stays.record()["complete"]


@pytest.mark.parametrize("record", [unmet("GPU-other"), unmet(began_s=NOW_S - 60)])
def test_who_was_elsewhere_or_earlier_had_none_of_it(record: dict[str, Any]) -> None:
    stays = run_of(7)
    accounting = Accounting(Driver(), lambda: [record])  # type: ignore[arg-type]
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == [(BRIEF.pid, BRIEF.peak_mib)]


def test_a_process_waits_until_the_runs_of_its_time_were_looked_for() -> None:
    """Its run may have begun since, and may have ended when it is looked for again."""
    stays, left = run_of(7), [unmet()]
    written: list[dict[str, Any]] = []
    accounting = Accounting(Driver(), lambda: written)  # type: ignore[arg-type]
    accounting.meet(GPU, [stays], at_s=BRIEF.start_s - 0.1)
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == []
    written += left
    accounting.meet(GPU, [stays])
    accounting.poll(GPU, [stays], others=False)
    assert peaks(stays) == []
