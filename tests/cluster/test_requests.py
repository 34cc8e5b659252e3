# SPDX-License-Identifier: Apache-2.0
"""Requests that keep their meaning: what a job asked for besides its GPU."""

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import until
from tests.cluster.rules import QUIET, fresh, liar, on_whole_gpu

pytestmark = pytest.mark.smoke


def reserve(lab: Lab, name: str, user: str) -> None:
    lab.run(
        ["scontrol", "create", "reservation", f"ReservationName={name}", "StartTime=now",
         "Duration=60", "Nodes=n1", f"Users={user},root", "Flags=IGNORE_JOBS"]
    )  # fmt: skip


@pytest.mark.timeout(120)
def test_a_reservation_outlives_the_recovery(lab: Lab) -> None:
    me = fresh(lab)
    reserve(lab, "mine", me.user or "root")
    try:
        args = ("--reservation=mine", "--nodelist=n1", "--output=o.log")
        job_id = me.submit(*QUIET, *args, script=liar("true", 1))
        until(lambda: lab.job(job_id)["Restarts"] == "1", 60, "recovered")
        job = lab.wait(job_id, "COMPLETED", 60)
        assert on_whole_gpu(job)
        assert (job["Reservation"], job["ReqNodeList"]) == ("mine", "n1")
    finally:
        lab.clear()
        lab.run(["scontrol", "delete", "ReservationName=mine"])


@pytest.mark.parametrize(
    ("args", "mark"),
    [
        (("--exclusive", "--gres=gpu:1"), ":exclusive:whole-node:"),
        (("--nodes=2-2", "--gres=gpu:1"), ":exclusive:multi-gpu:"),
        (("--gpus-per-task=1", "--ntasks=1"), ":collocate:fits:"),
        (("--nodelist=n1", "--gres=gpu:1"), ":collocate:fits:"),
    ],
)
def test_what_is_shared_and_what_is_not(lab: Lab, args: tuple[str, ...], mark: str) -> None:
    me = fresh(lab)
    done = lab.run(
        ["sbatch", "--parsable", "--hold", *QUIET, f"--coloc={me.summary}", *args, "--wrap=true"],
        user=me.user,
        check=False,
    )
    if "--nodes=2-2" in args:  # the lab has one node: Slurm's own refusal, after ours was told
        assert "whole" in done.stderr, done.stderr
        return
    job = lab.job(int(done.stdout.split()[-1].split(";")[0]))
    assert mark in job["AdminComment"]


def test_a_heterogeneous_job_goes_as_submitted(lab: Lab) -> None:
    me = fresh(lab)
    line = f"#!/bin/bash\n#SBATCH --coloc={me.summary} --gres=gpu:1 --mem=10\n#SBATCH hetjob\n"
    script = line + "#SBATCH --mem=10\ntrue\n"
    done = lab.run(["sbatch", "--hold"], user=me.user, input=script, check=False)
    assert done.returncode == 0, done.stderr
    assert "heterogeneous" in done.stderr, done.stderr
