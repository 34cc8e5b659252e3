# SPDX-License-Identifier: Apache-2.0
"""The waiting tasks of an array: what they get, and which records are named for it."""

from dataclasses import replace

import pytest

from slurm_coloc.core.recover.array_tasks import Share, new_request, waiting
from slurm_coloc.core.recover.dependency import names, renewed
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import JobView, Target, by_record, ranges

SHARE = Share("gres/shard:12", "gres/gpu:1", 12, 1024, 39)
MARK = "coloc:1:0123456789ab:collocate:fits:12"
ONE = JobView(
    7, "PENDING", tres_per_node="gres/shard:12", admin_comment=MARK, array_job_id=7, array_task="1"
)


def test_an_out_of_memory_means_what_its_recovery_gives() -> None:
    assert new_request(Outcome.OOM_GPU, SHARE, grown="gres/gpu:1") == "gres/gpu:1"
    assert new_request(Outcome.OOM_GPU, SHARE, grown="gres/shard:17") == "gres/shard:17"
    assert new_request(Outcome.OOM_GPU, SHARE) is None, "what a neighbour caused teaches nothing"


def test_a_plan_that_grew_before_it_was_done() -> None:
    views = [
        replace(ONE, array_task="1"),
        replace(ONE, array_task="2", tres_per_node="gres/shard:17"),
        replace(ONE, array_task="3", tres_per_node="gres/shard:3"),
    ]
    found = waiting(views, "0123456789ab", "gres/shard:12 gres/shard:17", "gres/gpu:1")
    assert [target.tasks for target in found] == [2]


def test_what_is_not_known_is_no_request() -> None:
    # Of a job that was taken over by its mark; an update to "" would take its GPU away.
    share = replace(SHARE, whole="")
    assert new_request(Outcome.OOM_GPU, share) is None
    assert new_request(Outcome.COMPLETED, share, [40000]) is None


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.OOM_GPU])
def test_nothing_else_changes_anything_without_a_measure(outcome: Outcome) -> None:
    assert new_request(outcome, SHARE) is None


@pytest.mark.parametrize(
    ("peaks", "tres"),
    [
        ([2000], None),  # one small task says nothing of the others
        ([2000, 2050, 1960], "gres/shard:3"),
        ([2000, 2400, 1900], None),  # they are not alike: the next may be larger still
        ([9000, 9500, 8000], None),  # 11 of 12: not worth it
        ([13000], "gres/shard:15"),  # above its share: the others may meet a full GPU
        ([36000], "gres/gpu:1"),
    ],
)
def test_measured_peaks(peaks: list[int], tres: str | None) -> None:
    assert new_request(Outcome.COMPLETED, SHARE, peaks) == tres


def test_tasks_that_ended_at_once_make_nothing_smaller() -> None:
    """They may have found their work done: they are completed and never trained."""
    peaks = [2000, 2000, 2000]
    assert new_request(Outcome.COMPLETED, SHARE, peaks, lasting_mib=[]) is None
    assert new_request(Outcome.COMPLETED, SHARE, [*peaks, 13000], lasting_mib=[]) == "gres/shard:15"
    both = new_request(Outcome.COMPLETED, SHARE, [*peaks, 2000], lasting_mib=peaks)
    assert both == "gres/shard:3"


def test_never_less_than_the_gpu_s_other_bounds_ask_for() -> None:
    peaks = [2000, 2000, 2000]
    assert new_request(Outcome.COMPLETED, replace(SHARE, least=5), peaks) == "gres/shard:5"
    assert new_request(Outcome.COMPLETED, replace(SHARE, least=10), peaks) is None
    assert new_request(Outcome.COMPLETED, SHARE, peaks, alike=False) is None


def test_other_gres_and_the_type_are_kept() -> None:
    share = replace(SHARE, tres="gres/shard:a100:12,gres/fpga:1")
    found = new_request(Outcome.COMPLETED, share, [2000, 2000, 2000])
    assert found == "gres/shard:a100:3,gres/fpga:1"


def tasks(*numbers: int, job_id: int = 7) -> list[JobView]:
    return [replace(ONE, job_id=job_id, array_task=str(number)) for number in numbers]


def test_one_record_is_one_update() -> None:
    views = [*tasks(1, 2, 3, 7), *tasks(5, job_id=12)]
    found = waiting(views, "0123456789ab", "gres/shard:12", "gres/gpu:1")
    assert found == [Target("7_[1-3,7]", 4), Target("7_5", 1)]


@pytest.mark.parametrize(
    "other",
    [
        replace(ONE, state="RUNNING"),
        replace(ONE, completing=True),
        replace(ONE, admin_comment="ticket 7"),
        replace(ONE, admin_comment=MARK.replace("0123", "3210")),
        replace(ONE, tres_per_node="gres/gpu:1"),
        replace(ONE, tres_per_node="gres/shard:3"),
    ],
)
def test_what_is_left_alone(other: JobView) -> None:
    assert waiting([other], "0123456789ab", "gres/shard:12", "gres/gpu:1") == []


def test_held_and_dependent_tasks_are_among_them() -> None:
    held = replace(ONE, priority=0, reason="JobHeldUser", dependency="afterok:3(unfulfilled)")
    assert waiting([held], "0123456789ab", "gres/shard:12", "gres/gpu:1") == [Target("7_1", 1)]


def test_where_whole_is_all_shards_nothing_is_done_twice() -> None:
    done = replace(ONE, tres_per_node="gres:shard:39")
    assert waiting([done], "0123456789ab", "gres/shard:12", "gres/shard:39") == []


def test_ranges() -> None:
    assert ranges([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"
    assert by_record([replace(ONE, array_task=None, array_job_id=None)]) == [Target("7", 1)]


@pytest.mark.parametrize(
    ("dependency", "meant"),
    [
        ("afterok:7(failed)", True),
        ("afterok:7(unfulfilled)", False),
        ("afterok:17(failed)", False),
        ("afterany:3(unfulfilled),afterok:7(failed)", True),
        ("afterok:3(failed)?afterok:7(failed)", True),
        ("afterok:20_1(failed)", True),
        ("afterok:20_2(failed)", False),
        ("aftercorr:20_*(failed)", True),
        ("singleton(unfulfilled)", False),
        ("after:7+5(failed)", True),
    ],
)
def test_which_dependencies_name_a_job(dependency: str, meant: bool) -> None:
    assert names(dependency, replace(ONE, array_job_id=20)) is meant


def test_a_dependency_as_scontrol_takes_it() -> None:
    shown = "afterok:20_1(failed),aftercorr:20_*(failed),after:7+5(unfulfilled)"
    assert renewed(shown) == "afterok:20_1,aftercorr:20,after:7+5"


def test_tasks_that_wait_for_a_mig_device() -> None:
    """After an out-of-memory they get the whole GPU, and are named once it is another request."""
    device = Share("gres:gpu:1g.5gb:1", "gres/gpu:a100:1", 0, 4864, 1)
    assert new_request(Outcome.OOM_GPU, device, grown=device.whole) == device.whole
    assert new_request(Outcome.COMPLETED, device, [1500, 1500, 1500]) is None
    waits = replace(ONE, tres_per_node="gres/gpu:1g.5gb:1")
    changed = replace(ONE, tres_per_node="gres/gpu:a100:1")
    own = replace(ONE, tres_per_node="gres/gpu:h100:1", array_task="2")
    goal = "gres/gpu:a100:1"
    assert waiting([waits, own], "0123456789ab", device.tres, goal) == [Target("7_1", 1)]
    assert waiting([changed], "0123456789ab", device.tres, goal) == []
