# SPDX-License-Identifier: Apache-2.0
"""A node that leaves with shared jobs on it and returns; reports that come late or twice."""

import time
from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import ask, shards, until
from tests.cluster.rules import OOM, QUIET, fresh, outcomes, told

WAITS = '#!/bin/bash\n[ -n "$SLURM_RESTART_COUNT" ] || exec sleep 300\n'


def report(lab: Lab, job_id: int, node: str) -> None:
    """What an Epilog would have told of the first run."""
    evidence = {"oom": True, "kind": "cuda", "line": OOM[:100]}
    ask(lab, op="report", job_id=job_id, restart=0, node=node, exit_code=1, signal=0,
        ended_s=time.time(), evidence=evidence)  # fmt: skip


@pytest.mark.timeout(240)
def test_a_node_leaves_and_returns(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(
        nodes=2,
        machine="1xa100-40gb",
        users=1,
        settings={"daemon": {"idle_s": 2.0}},
        # With 2 an answer of the killed slurmd, still on its way, takes the node back at once.
        slurm_conf_extra="ReturnToService=1",
    )
    me = fresh(lab)
    moved = me.submit(*QUIET, "--output=m.log", script=WAITS)
    stays = me.submit(*QUIET, "--output=s.log", "--no-requeue", script=WAITS)
    drained = me.submit(*QUIET, "--output=d.log", "--nodelist=n2", wrap="sleep 6")
    node = lab.wait(moved, "RUNNING")["NodeList"]
    assert lab.wait(stays, "RUNNING")["NodeList"] == node == "n1"
    lab.wait(drained, "RUNNING")
    before = lab.job(moved)
    until(lambda: outcomes(me, moved) == [None] == outcomes(me, stays), 20, "colocd follows them")

    def to(state: str, name: str) -> None:
        lab.run(["scontrol", "update", f"NodeName={name}", f"State={state}", "Reason=test"])

    to("DRAIN", "n2")
    lab.daemon("slurmd-n1").kill()
    to("DOWN", "n1")
    after = until(
        lambda: job if (job := lab.job(moved))["JobState"] == "PENDING" else None, 30, "requeued"
    )
    assert (after["Restarts"], after["AdminComment"]) == ("1", before["AdminComment"])
    assert shards(after) == shards(before) > 0
    lab.wait(stays, "NODE_FAIL", 30)
    until(lambda: outcomes(me, moved)[0] == "node-fail", 30, "the run is closed as node-fail")
    until(lambda: outcomes(me, stays) == ["node-fail"], 30, "so is that of the other")
    # Late, and twice: the run is closed, nothing is put back.
    for _ in range(2):
        report(lab, moved, "n1")
        report(lab, stays, "n1")
    # A draining node keeps its jobs.
    lab.wait(drained, "COMPLETED", 60)
    until(lambda: outcomes(me, drained) == ["completed"], 30, "recorded")

    to("RESUME", "n2")
    lab.run(["scontrol", "update", f"JobId={moved}", "StartTime=now+3"], user=me.user)
    lab.wait(moved, "COMPLETED", 60)
    until(lambda: outcomes(me, moved) == ["node-fail", "completed"], 30, "both runs are told")
    assert lab.job(moved)["Restarts"] == "1"
    assert "requeue on a whole GPU" not in told(me, moved)
    assert ask(lab, op="status")["open_work"] == 0

    lab.start("slurmd-n1")
    to("RESUME", "n1")
    again = me.submit(*QUIET, "--output=/dev/null", "--nodelist=n1", wrap="true")
    lab.wait(again, "COMPLETED", 60)
    assert lab.job(stays)["JobState"] == "NODE_FAIL"
