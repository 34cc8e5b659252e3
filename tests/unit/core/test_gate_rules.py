# SPDX-License-Identifier: Apache-2.0
"""Whether a GPU is fit for a job, and the way of a job that was put back."""

from dataclasses import replace

import pytest

from slurm_coloc.core.recover.fitness import GpuNow, GpuProcess, unfit
from slurm_coloc.core.recover.put_back import Goal, Step, next_step, pause_s
from slurm_coloc.core.slurm.job import REQUEUED_HELD, JobView

GPU = GpuNow("GPU-1", 40536, 40536)
MINE = GpuProcess(11, 9000, 5, 1000, "python")
STRANGER = GpuProcess(12, 3000, None, 1001, "python")


@pytest.mark.parametrize(
    ("gpu", "need_mib", "why"),
    [
        (GPU, 12288, ""),
        (GPU, None, ""),
        (replace(GPU, free_mib=12000), 12288, ""),  # within the slack
        (replace(GPU, free_mib=11000), 12288, "GPU-1: 10.7 GiB free, 12.0 GiB promised"),
        (replace(GPU, free_mib=37000), None, ""),  # the driver's own
        (replace(GPU, free_mib=36000), None, "GPU-1: 35.2 GiB free, 39.6 GiB promised"),
        (replace(GPU, free_mib=None), None, ""),
        (replace(GPU, total_mib=None, free_mib=10), None, ""),
        (replace(GPU, holders=(MINE,)), 12288, ""),
        (replace(GPU, holders=(replace(STRANGER, uid=0),)), 12288, ""),
        (replace(GPU, holders=(replace(STRANGER, uid=None),)), 12288, "process 12"),
        (
            replace(GPU, holders=(MINE, STRANGER)),
            12288,
            "GPU-1: process 12 (python) of uid 1001 with 2.9 GiB of no job runs there",
        ),
        (
            replace(GPU, free_mib=3000, holders=(replace(MINE, pid=13, used_mib=1), MINE)),
            12288,
            "process 11 (python) of job 5 with 8.8 GiB and 1 more runs there",
        ),
    ],
)
def test_unfit(gpu: GpuNow, need_mib: int | None, why: str) -> None:
    found = unfit(gpu, need_mib, 512)
    assert why in found and bool(why) == bool(found)


BACK = JobView(7, "PENDING", restarts=1, priority=0, reason=REQUEUED_HELD)
GOAL = Goal(restart=0, elsewhere=True)


@pytest.mark.parametrize(
    ("view", "goal", "step"),
    [
        (replace(BACK, completing=True), GOAL, Step.WAIT),
        (BACK, GOAL, Step.EXCLUDE),
        (BACK, replace(GOAL, elsewhere=False), Step.DELAY),
        (BACK, replace(GOAL, excluded=True), Step.DELAY),
        (BACK, replace(GOAL, excluded=True, delayed=True), Step.RELEASE),
        (BACK, replace(GOAL, elsewhere=False, delayed=True), Step.RELEASE),
        # held by its owner afterwards
        (replace(BACK, reason="JobHeldUser"), Goal(0, False, delayed=True), Step.DONE),
        (replace(BACK, priority=9), replace(GOAL, excluded=True, delayed=True), Step.WAIT),
        (replace(BACK, priority=9), Goal(0, True, True, True, over=True), Step.ADMIT),
        (replace(BACK, priority=9), Goal(0, False, delayed=True), Step.DONE),
        # Its node is excluded in every later run too, until it is given back.
        (replace(BACK, state="RUNNING", priority=9), Goal(0, True, True, True), Step.WAIT),
        (replace(BACK, state="RUNNING", priority=9), Goal(0, True, True, True, True), Step.WAIT),
        (replace(BACK, restarts=3, priority=9), Goal(0, True, True, True), Step.WAIT),
        (replace(BACK, restarts=3, priority=9), Goal(0, True, True, True, True), Step.ADMIT),
        (replace(BACK, restarts=3, completing=True), Goal(0, True, True, True, True), Step.WAIT),
        (replace(BACK, state="COMPLETED"), Goal(0, True, True, True, True), Step.DONE),
        (replace(BACK, state="RUNNING", priority=9), Goal(0, False, delayed=True), Step.DONE),
        (replace(BACK, state="CANCELLED"), GOAL, Step.DONE),
        (replace(BACK, restarts=2), GOAL, Step.DONE),
        (replace(BACK, state="RUNNING", restarts=0), GOAL, Step.LOST),
        (replace(BACK, state="COMPLETED", restarts=0, completing=True), GOAL, Step.WAIT),
    ],
)
def test_the_next_step(view: JobView, goal: Goal, step: Step) -> None:
    assert next_step(view, goal) is step


def test_pauses_double_to_a_limit() -> None:
    assert [pause_s(n, 60, 600) for n in (0, 1, 2, 4, 5, 10**6)] == [60, 60, 120, 480, 600, 600]
