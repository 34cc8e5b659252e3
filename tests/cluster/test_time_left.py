# SPDX-License-Identifier: Apache-2.0
"""How long a job still takes, by its log: where the site has that read, for its owner alone."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, train, until
from tests.harness.trace import WITHOUT_TRACE, may_trace_processes

Make = Callable[..., Lab]


def left(lab: Lab, job: int, user: str) -> Any:
    """What a user is told of a job's time; None for nothing."""
    words = ["eta"] if user == lab.users[0] else ["jobs", "--all"]
    rows = coloc(lab, *words, user=user)["jobs"]
    return next((row["time_left"] for row in rows if row["job_id"] == job), None)


@pytest.mark.skipif(not may_trace_processes(), reason=WITHOUT_TRACE)
@pytest.mark.timeout(240)
def test_the_log_says_how_long_it_still_takes(make_lab: Make) -> None:
    lab = make_lab(users=2, settings={"agent": {"log_read_s": 1, "beat_s": 1}})
    ada, ben = lab.users[:2]
    log = lab.home(ada) / "private.log"
    work = train(lab, memory_mib=3000, smact=0.3, work_s=90, log_every_s=1)
    job = lab.sbatch("--coloc-memory=6G", f"--output={log}", wrap=work, user=ada)
    # Ben's log claims what no log may: it must not cost ada's forecast, nor the node its figures.
    absurd = "for i in $(seq 900); do echo step $i/1000000000000; sleep 0.3; done"
    liar = lab.sbatch("--coloc-memory=6G", wrap=absurd, user=ben)

    def known() -> Any:
        told = left(lab, job, ada)
        return told if told and told["by"] == "log" and told["left_s"] is not None else None

    until(lambda: (told := known()) and told["done"] > 0.2, 90, "the log is read")
    log.chmod(0o600)
    told, asked_s = known(), time.time()
    assert told["low_s"] <= told["left_s"] <= told["high_s"]
    assert "its log" in lab.run(["coloc", "eta", str(job)], user=ada).stdout
    assert " left" in lab.run(["coloc", "top", "--once"], user=ada).stdout
    assert left(lab, job, ben) is None
    until(lambda: lab.output(liar).count("step ") > 20, 60, "ben's log has its say")
    claims = [row["time_left"] for row in coloc(lab, "jobs", user=ben)["jobs"]]
    assert all(claim is None or claim["left_s"] is None for claim in claims)
    assert coloc(lab, "gpus", user=ada)["gpus"] and known()
    lab.run(["scancel", str(liar)], user=ben)
    until(lambda: coloc(lab, "explain", str(job), user=ada)["runs"][-1]["outcome"], 180, "it ends")
    ended_s = coloc(lab, "explain", str(job), user=ada)["runs"][-1]["end_s"]
    assert ended_s - asked_s == pytest.approx(told["left_s"], abs=0.35 * told["left_s"] + 3)


@pytest.mark.timeout(120)
def test_by_default_no_log_is_read(make_lab: Make) -> None:
    lab = make_lab(users=1)
    [ada] = lab.users
    work = train(lab, memory_mib=3000, smact=0.3, work_s=15, log_every_s=1)
    job = lab.sbatch("--coloc-memory=6G", wrap=work, user=ada)
    until(lambda: lab.output(job).count("step ") > 8, 60, "it trains")
    assert left(lab, job, ada) is None
    assert "not known" in lab.run(["coloc", "eta"], user=ada).stdout
    lab.run(["scancel", str(job)], user=ada)
