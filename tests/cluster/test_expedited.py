# SPDX-License-Identifier: Apache-2.0
"""sbatch --requeue=expedite (25.11 and later): Slurm itself puts a failed job back and holds it.

After an out-of-memory colocd gives it more and ends that hold; after any other failure it stays.
"""

from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, known, until
from tests.cluster.rules import QUIET, fresh, liar, on_whole_gpu, outcomes, starts, told

SETTINGS = {"daemon": {"idle_s": 1.0}}
CONF = "SlurmctldParameters=enable_expedited_requeue"
pytestmark = [
    pytest.mark.needs_slurm("25.11", "has no --requeue=expedite"),
    pytest.mark.timeout(180),
]


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(machine="1xa100-40gb", users=1, settings=SETTINGS, slurm_conf_extra=CONF)


def put_back(lab: Lab, job: int) -> None:
    """Until Slurm holds it again."""

    def held() -> bool:
        shown = lab.job(job)
        return shown["Restarts"] == "1" and shown["Priority"] == "0"

    until(held, 60, "Slurm puts it back, held")


def submit(me: Desk, script: str) -> int:
    return me.submit(*QUIET, "--requeue=expedite", script=script)


@pytest.mark.parametrize("seen", [True, False])
def test_colocd_was_away_at_the_out_of_memory(lab: Lab, seen: bool) -> None:
    """``seen``: it had followed the job before."""
    me = fresh(lab)
    job = submit(me, liar("true", 5))
    lab.wait(job, "RUNNING")
    if seen:
        until(lambda: known(lab, "explain", str(job), user=me.user).get("runs"), 4, "it is seen")
    lab.colocd.kill()
    put_back(lab, job)
    lab.colocd.start()
    until(lambda: outcomes(me, job) == ["oom-gpu", "completed"], 90, f"it ran: {told(me, job)}")
    assert on_whole_gpu(lab.job(job))
    assert starts(me) == {(job, 0): 1, (job, 1): 1}


def test_colocd_is_there(lab: Lab) -> None:
    me = fresh(lab)
    job = submit(me, liar("true", 1))
    until(lambda: outcomes(me, job) == ["oom-gpu", "completed"], 90, f"it ran: {told(me, job)}")
    assert on_whole_gpu(lab.job(job))


def test_another_failure_stays_held(lab: Lab) -> None:
    """What Slurm does with a job that failed by itself is the site's."""
    me = fresh(lab)
    job = submit(me, "#!/bin/bash\nsleep 1\nexit 3\n")
    put_back(lab, job)
    after = submit(me, liar("false"))
    until(lambda: outcomes(me, after) == ["completed"], 60, "a later job has run")
    assert lab.job(job)["Priority"] == "0" and lab.job(job)["Restarts"] == "1"
