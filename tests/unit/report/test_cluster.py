# SPDX-License-Identifier: Apache-2.0
"""What sharing saved and cost: figures that are counted by hand."""

import json
from typing import Any

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import FITTED
from slurm_coloc.core.report.cluster import SLOWER, report
from slurm_coloc.core.report.past import NAMES, PastRun, packed, unpacked

HOUR = 3600.0


def run(begin_h: float, end_h: float, *gpus: str, **changes: Any) -> PastRun:
    """A run from one hour to another; with a share of 8 GiB."""
    given: dict[str, Any] = {
        "job_id": 1, "uid": 1001, "account": "ml", "partition": "gpu", "shared": True,
        "outcome": "completed", "blame": None, "verdict": "none", "submit_s": begin_h * HOUR - 60,
        "start_s": begin_h * HOUR, "end_s": end_h * HOUR, "gpus": gpus, "peak_mib": 6000,
        "memory_mib": 6000, "upper_mib": 8000, "share_mib": 8192, "smact": 0.2, "method": "mps",
        "idle": False,
    }  # fmt: skip
    return PastRun(**(given | changes))


def test_two_runs_that_overlap_for_an_hour() -> None:
    """Four GPU hours on three: one is saved, half of it by each."""
    found = report([run(0, 2, "A"), run(1, 3, "A", account="bio")])
    assert (found.shared_hours, found.used_hours, found.saved_hours) == (4.0, 3.0, 1.0)
    assert [(group.name, group.saved_hours) for group in found.accounts] == [
        ("ml", 0.5),
        ("bio", 0.5),
    ]
    assert found.sooner_s == HOUR  # the second began an hour before the first had left
    assert found.gpus == 1


def test_runs_on_gpus_of_their_own_save_nothing() -> None:
    found = report([run(0, 2, "A"), run(0, 2, "B"), run(3, 4, "A")])
    assert (found.shared_hours, found.used_hours, found.saved_hours) == (5.0, 5.0, 0.0)
    assert found.sooner_s == 0.0


def test_three_at_once_and_one_of_two_gpus() -> None:
    found = report([run(0, 1, "A"), run(0, 1, "A"), run(0, 1, "A", "B")])
    assert (found.shared_hours, found.used_hours, found.saved_hours) == (4.0, 2.0, 2.0)


def test_a_run_on_an_unknown_gpu_claims_nothing() -> None:
    found = report([run(0, 2, "A"), run(0, 2)])
    assert (found.shared_hours, found.saved_hours) == (4.0, 0.0)


def test_whole_gpus_are_not_shared() -> None:
    found = report([run(0, 2, "A"), run(0, 2, "A", shared=False)])
    assert (found.shared_hours, found.saved_hours, found.hours) == (2.0, 0.0, 4.0)
    assert (found.runs, found.shared) == (2, 1)


def test_what_the_work_would_have_taken_alone() -> None:
    """Of two that run beside each other all the time, at the model's speeds."""
    found = report([run(0, 1, "A", smact=0.8), run(0, 1, "A", smact=0.8)])
    [speed, _] = FITTED.speeds([Activity(0.8), Activity(0.8)], "mps")
    assert found.predicted == 2
    assert found.alone_hours == pytest.approx(2 * speed)
    assert speed < 0.95
    place = sum(1 / speed > end for end in SLOWER)
    assert found.slower[place] == 2


def test_without_an_activity_no_speed_is_predicted() -> None:
    """Neither of the one nor of its neighbour; a third that was alone is known."""
    found = report([run(0, 1, "A", smact=None), run(0, 1, "A"), run(5, 6, "B", smact=None)])
    assert (found.predicted, found.predicted_hours, found.alone_hours) == (1, 1.0, 1.0)


def test_whose_doing() -> None:
    found = report([
        run(0, 1, "A", outcome="oom-gpu", blame="neighbour"),
        run(0, 1, "A", outcome="oom-gpu", blame=None),
        run(0, 1, "A", outcome="overrun", blame="self"),
        run(0, 1, "A", outcome="put-back"),
        run(0, 1, "A", outcome="cancelled", start_s=None),
    ])  # fmt: skip
    assert found.ooms == {"neighbour": 1, "unknown": 1, "self": 1}
    assert found.outcomes == {"oom-gpu": 2, "overrun": 1}
    assert found.put_back == 1  # one that was cancelled in the queue was not put back


def test_waits_of_shares_and_of_others() -> None:
    found = report([
        run(1, 2, "A", submit_s=HOUR - 10), run(1, 2, "A", submit_s=HOUR - 30),
        run(1, 2, "B", shared=False, submit_s=HOUR - 600), run(1, 2, "B", submit_s=None),
    ])  # fmt: skip
    assert found.waits_s == (20.0, 600.0)
    assert report([]).waits_s == (None, None)


def test_estimates_against_peaks() -> None:
    found = report([
        run(0, 1, "A", peak_mib=3000), run(0, 1, "A", peak_mib=9000),
        run(0, 1, "A", peak_mib=None), run(0, 1, "A", memory_mib=None),
    ])  # fmt: skip
    assert found.ratios == [0.5, 1.5]
    assert found.pairs == [(6000, 3000), (6000, 9000)]
    assert found.over_upper == 1


def test_idle_holders_are_named_the_longest_first() -> None:
    found = report([run(0, 1, "A", idle=True), run(0, 9, "A"), run(0, 3, "B", job_id=2, idle=True)])
    assert [one.job_id for one in found.idle] == [2, 1]


def test_days_without_runs_are_there() -> None:
    found = report([run(1, 2, "A"), run(49, 50, "A"), run(49, 51, "A", outcome="oom-gpu")])
    assert [(day.shared, day.oom) for day in found.days] == [(1, 0), (0, 0), (2, 1)]
    assert [day.saved_hours for day in found.days] == [0.0, 0.0, 1.0]


def test_the_way_over_the_socket() -> None:
    runs = [run(0, 1, "A"), run(0, 2, "B", "A", blame="self"), run(0, 1)]
    body = json.loads(json.dumps(packed(runs)))
    assert unpacked(body) == runs
    assert body["gpus"] == ["A", "B"]


def test_another_release_may_have_more_names_or_fewer() -> None:
    body = packed([run(0, 1, "A")])
    body["names"].append("more")
    body["rows"] = [[*row, 1] for row in body["rows"]]
    assert unpacked(body) == [run(0, 1, "A")]
    place = NAMES.index("idle")
    fewer = {**body, "names": [name for name in body["names"] if name != "idle"]}
    fewer["rows"] = [row[:place] + row[place + 1 :] for row in body["rows"]]
    assert unpacked(fewer)[0].job_id == 1
