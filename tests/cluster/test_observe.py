# SPDX-License-Identifier: Apache-2.0
"""A site that only observes: jobs without --coloc are measured, and one page tells what sharing
would have saved, from their own memory and activity. The configuration is the default one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.flow.client.request import call_socket
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import ask, coloc, desk, train, until

Make = Callable[..., Lab]
#: true footprints (MiB) of two users' jobs, each on a GPU of its own
TRUTH = (3300, 6100)


def page(lab: Lab, user: str | None = None, check: bool = True) -> Any:
    """`coloc simulate --observed` of the last day."""
    words = ["coloc", "simulate", "--observed", "--days", "1", "--json"]
    return lab.run(words, user=user, check=check)


def rows(lab: Lab) -> dict[int, dict[str, Any]]:
    """What was measured of each job that Slurm has named."""
    found = call_socket(lab.dir / "coloc" / "colocd.sock", "observed", days=1)["jobs"]
    return {row["job_id"]: row for row in found if row["uid"] is not None}


@pytest.mark.timeout(240)
def test_jobs_without_coloc_are_measured(make_lab: Make) -> None:
    lab = make_lab(mode="observe", users=2, machine="dgx-station-a100")
    jobs = []
    for number, mib in enumerate(TRUTH):
        me = desk(lab, 300, user=number)
        wrap = train(lab, memory_mib=mib, smact=0.3, work_s=8)
        jobs.append(lab.sbatch("--gres=gpu:1", wrap=wrap, user=me.user))
    asked = desk(lab, 300).submit(
        "--gres=gpu:1", wrap=train(lab, memory_mib=2100, smact=0.2, work_s=8)
    )

    # Named by Slurm within half a minute, and measured to the end.
    until(lambda: set(rows(lab)) >= {*jobs, asked}, 90, "all three are measured and named")
    until(lambda: [rows(lab)[job]["peak_mib"] for job in jobs] == list(TRUTH), 60, "their peaks")
    assert rows(lab)[jobs[0]]["uid"] != rows(lab)[jobs[1]]["uid"]
    # Nothing was done to them: no run, no record of ours.
    assert coloc(lab, "history")["runs"] == []
    assert coloc(lab, "explain", str(asked))["source"] == "observe"
    found = json.loads(page(lab).stdout)
    assert found["page"]["jobs"] == 3 and found["page"]["users"] == 2
    # Whose jobs they are is for root and SlurmUser.
    denied = page(lab, user=lab.users[0], check=False)
    assert denied.returncode == 2 and "may not ask this" in denied.stderr


#: a job that calls itself another one, in every way that its user has
MASKED = """#!/bin/bash
export SLURM_JOB_ID={other} SLURM_JOBID={other}
for _ in $(seq 30); do
  bash -c 'exec -a "slurmstepd: [{other}.batch]" bash -c "{train}; :"' &
done
wait
"""


@pytest.mark.timeout(240)
def test_a_user_is_not_measured_as_another(make_lab: Make) -> None:
    """Neither an environment nor the title of a process makes a job's memory another's; thirty
    processes are one job, and the other is measured as if they were not there."""
    lab = make_lab(mode="observe", users=2, machine="dgx-station-a100")
    honest, liar = (desk(lab, 300, user=number) for number in (0, 1))
    wrap = train(lab, memory_mib=TRUTH[0], smact=0.3, work_s=25)
    victim = lab.sbatch("--gres=gpu:1", wrap=wrap, user=honest.user)
    lab.wait(victim, "RUNNING")
    each = train(lab, memory_mib=900, smact=0.01, work_s=10)
    script = MASKED.format(other=victim, train=each)
    masked = lab.sbatch("--gres=gpu:1", script=script, user=liar.user)

    until(lambda: set(rows(lab)) >= {victim, masked}, 90, "both are measured and named")
    for job_id in (victim, masked):
        lab.wait(job_id, "COMPLETED", 120)
    until(lambda: rows(lab)[masked]["peak_mib"] >= 20 * 900, 60, "its processes are its own")
    found = rows(lab)
    assert found[victim]["peak_mib"] == TRUTH[0]
    assert found[victim]["uid"] != found[masked]["uid"]
    assert ask(lab, op="status")["ok"]
