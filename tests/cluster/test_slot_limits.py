# SPDX-License-Identifier: Apache-2.0
"""Time slots of jobs whose limits are stretched, on a real Slurm: what a job loses beside others is
given back to it over all its slots, no slot is shorter for it, and Slurm's caps hold.

A limit of a minute, slots of 54 s, and two neighbours that leave less than half of the GPU: by the
clock the second slot would be the last one, and the limit would end it without a signal.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.rules import told
from tests.cluster.test_slots import restarts, share, story
from tests.cluster.test_time_limits import SHORT, busy, limit

SLOT_S, BEFORE_S, LIMIT_S = 54, 4, 60
SETTINGS: dict[str, Any] = {
    "slots": {"min_s": 1, "signal_before_s": BEFORE_S, "grace_s": 20, "behind_s": 0},
    "slowdown": {"interval_s": 1.0},
    "agent": {"window_s": 5, "beat_s": 2},
}
# It trains, and leaves at its signal.
LEAVES = """#!/bin/bash
trap 'kill $work; echo "coloc: checkpoint saved"; scontrol requeue $SLURM_JOB_ID; sleep 60' URG
{} & work=$!
for i in $(seq 1000); do sleep 0.2; done
"""
USED = re.compile(r"its slot has ended, (\d+) s used")
LEFT = re.compile(r"; (\d+) s left")


def begins(me: Desk, node: str, *args: str) -> int:
    """A job with slots beside two busy ones on a node."""
    for _ in range(2):
        wrap = f"exec {busy(me, 3000)}"
        other = share(me, f"--nodelist={node}", "--time=30", wrap=wrap)
        me.lab.wait(other, "RUNNING", 60)
    slot, script = f"--coloc-slot=0:{SLOT_S}", LEAVES.format(busy(me, 3000))
    job = share(me, f"--nodelist={node}", "--time=1", slot, *args, script=script)
    me.lab.wait(job, "RUNNING", 60)
    return job


def figures(me: Desk, job: int, pattern: re.Pattern[str]) -> list[float]:
    """Seconds that the job's story tells of its slots, in order."""
    return [float(found[1]) for text in story(me, job) if (found := pattern.search(text))]


def has_slots_that_are_whole(me: Desk, job: int) -> None:
    """Two slots ended by its signal, none early, and its time is what it had of the GPU."""
    runs = [run for run in me.explain(job)["runs"] if not run["open"]][:2]
    ran_s = [run["end_s"] - run["start_s"] for run in runs]
    assert [run["outcome"] for run in runs] == ["slot", "slot"]
    assert all(SLOT_S - BEFORE_S - 1 <= one <= SLOT_S + 20 for one in ran_s), ran_s
    lost_s = [row["lost_s"] for row in me.explain(job)["time_limits"]][:2]
    assert all(lost >= one / 3 for lost, one in zip(lost_s, ran_s, strict=True)), (lost_s, ran_s)
    used_s, left_s = figures(me, job, USED), figures(me, job, LEFT)
    own_s = sum(ran_s) - sum(lost_s)
    # What was lost is written four times a minute; its end is counted at the last speed.
    assert own_s - 30 <= used_s[1] <= own_s + 1, (used_s, ran_s, lost_s)
    assert [LIMIT_S - one for one in used_s[:2]] == pytest.approx(left_s[:2], abs=1)


@pytest.mark.long
@pytest.mark.timeout(420)
def test_all_slots_together_have_what_sharing_took(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(
        nodes=2, machine="1xa100-40gb", users=1, slurm_conf_extra=SHORT, settings=SETTINGS
    )  # fmt: skip
    me = desk(lab, 300)
    job, capped = begins(me, "n1"), begins(me, "n2", "--partition=short")
    for slot in (1, 2):
        for one in (job, capped):
            until(lambda one=one, slot=slot: restarts(lab, one) >= slot, 120, "it left in time")
            text = f"slot {slot} is counted, and the next is bounded"
            until(lambda one=one, slot=slot: len(figures(me, one, LEFT)) >= slot, 60, text)
            assert limit(lab, one) == "00:01:00"  # what is left is less than a minute
    for one in (job, capped):
        assert sum("SIGURG" in text for text in story(me, one)) >= 2
        has_slots_that_are_whole(me, one)
    given = [row["set_s"] for row in me.explain(job)["time_limits"]]
    assert given[:2] == [120, 120], told(me, job)  # stretched in each, from a minute
    assert not any(row["set_s"] for row in me.explain(capped)["time_limits"])
    assert "stays 60 s: MaxTime of partition short" in told(me, capped)
    assert "its owner" not in told(me, job)  # a slot's limit is none that somebody else has set
