# SPDX-License-Identifier: Apache-2.0
"""Preemption is Slurm's own: never an out-of-memory, and no sharing where jobs are suspended."""

from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, shards, until
from tests.cluster.rules import OOM, QUIET, fresh, outcomes

CONF = """\
PreemptType=preempt/partition_prio
PreemptMode=SUSPEND,GANG
PartitionName=again Nodes=ALL PreemptMode=REQUEUE MaxTime=60 State=UP
PartitionName=ends Nodes=ALL PreemptMode=CANCEL GraceTime=0 MaxTime=60 State=UP
PartitionName=first Nodes=ALL PriorityTier=100 PreemptMode=OFF MaxTime=60 State=UP
"""
QUICK = {"daemon": {"idle_s": 1.0}}
# The log tells of an out-of-memory that the program survived.
SURVIVOR = f'#!/bin/bash\necho "{OOM}" >&2\n[ -n "$SLURM_RESTART_COUNT" ] || exec sleep 300\n'


@pytest.mark.timeout(180)
def test_preempted_jobs_are_left_to_slurm(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(machine="1xa100-40gb", users=1, slurm_conf_extra=CONF, settings=QUICK)
    me = fresh(lab)
    # PreemptMode=SUSPEND,GANG holds for the partition that names none: no sharing there.
    refused = me.submit(*QUIET, "--hold", wrap="true")
    assert ":exclusive:suspends:" in lab.job(refused)["AdminComment"]
    found = {one["check"]: one for one in coloc(lab, "doctor")["checks"]}
    assert found["preempt-mode"]["status"] == "warn"
    assert "main" in found["preempt-mode"]["found"]
    assert "again" not in found["preempt-mode"]["found"]

    again = me.submit(*QUIET, "--partition=again", "--output=a.log", script=SURVIVOR)
    ends = me.submit(*QUIET, "--partition=ends", "--output=e.log", script=SURVIVOR)
    before = lab.wait(again, "RUNNING")
    lab.wait(ends, "RUNNING")
    for job_id in (again, ends):
        until(lambda job_id=job_id: me.explain(job_id)["runs"], 20, "colocd follows it")
    hog = lab.sbatch(
        "--partition=first", "--gres=shard:39", "--mem=10", "--output=/dev/null", wrap="sleep 4"
    )
    lab.wait(hog, "RUNNING", 60)
    after = until(
        lambda: job if (job := lab.job(again))["JobState"] == "PENDING" else None,
        30,
        "Slurm has put it back",
    )
    assert after["Restarts"] == "1"
    assert after["AdminComment"] == before["AdminComment"]
    assert shards(after) == shards(before) > 0
    assert lab.job(ends)["JobState"] == "PREEMPTED"
    until(lambda: outcomes(me, ends) == ["preempted"], 90, "how it ended is recorded")
    until(lambda: outcomes(me, again)[0] in ("requeued", "preempted"), 90, "so is the other")
    assert me.explain(again)["runs"][0]["verdict"] == "not-ours"
    # Its owner ends Slurm's own wait after the requeue; it runs again in its share.
    lab.run(["scontrol", "update", f"JobId={again}", "StartTime=now+3"], user=me.user)
    done = lab.wait(again, "COMPLETED", 60)
    assert (done["Restarts"], shards(done)) == ("1", shards(before))
