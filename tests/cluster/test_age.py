# SPDX-License-Identifier: Apache-2.0
"""A job that waits at the gate of steered placement keeps its age, and so its place
(core/place/gate_wait).

Its age is a part of its priority only with slurmdbd; when it began counts without one too.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.rules import QUIET
from tests.cluster.test_gate import foreigner, story
from tests.cluster.test_node_gate import PARAMETERS, extra
from tests.cluster.test_order import no_accounting
from tests.cluster.test_steered import fresh, gpu, known_busy, steered, submit

AGE = "PriorityWeightAge=1000000\nPriorityMaxAge=0-1\nPriorityCalcPeriod=1"


@pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones")
@pytest.mark.timeout(400)
def test_who_waits_at_the_gate_keeps_its_age(make_lab: Callable[..., Lab]) -> None:
    lab = gated(make_lab)
    me = desk(lab, 300)
    busy = occupy(lab, me)

    waits = submit(me)
    row = until(lambda: at_the_gate(lab, waits), 20, "it waits at the gate")
    assert row["Extra"] == "smact<1&(coloc=1)"
    accrued, submitted = (datetime.fromisoformat(row[key]) for key in ("AccrueTime", "SubmitTime"))
    # Slurm sets it when its priority thread, which runs each second, finds the job eligible.
    assert accrued - submitted <= timedelta(seconds=2)
    before = int(row["Priority"])
    passes = lab.sbatch("-n1", *QUIET, wrap="true", user=lab.users[1])
    lab.wait(passes, "COMPLETED")  # it is no place that others wait behind
    lab.colocd.kill()
    lab.colocd.start()
    until(lambda: fresh(lab), 40, "colocd is back")
    again = at_the_gate(lab, waits)
    assert again and again["AccrueTime"] == row["AccrueTime"], "a restart changes nothing"
    if not no_accounting():
        until(lambda: int(lab.job(waits)["Priority"]) > before, 90, "its age counts")
    lab.run(["scancel", str(busy)])
    row = lab.wait(waits, "RUNNING", 60)
    assert (row["Extra"], row["AccrueTime"]) == ("smact>=0", again["AccrueTime"])
    assert gpu(lab, waits) == "n1/a100-0"


@pytest.mark.long
@pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones")
@pytest.mark.timeout(400)
def test_without_colocd_nobody_waits_at_the_gate(make_lab: Callable[..., Lab]) -> None:
    """The node's agent opens it."""
    lab = gated(make_lab)
    me = desk(lab, 300)
    busy = occupy(lab, me)
    waits = submit(me)
    until(lambda: at_the_gate(lab, waits), 20, "it waits at the gate")
    lab.colocd.kill()
    lab.wait(waits, "RUNNING", 120)
    assert lab.job(busy)["JobState"] == "RUNNING"


@pytest.mark.long
@pytest.mark.skipif(bool(no_accounting()), reason=no_accounting() or "-")
@pytest.mark.timeout(300)
def test_who_is_put_back_has_his_place_again(make_lab: Callable[..., Lab]) -> None:
    """The node's gate requeues it, which takes its age; that is no fault of its own."""
    lab = make_lab(
        users=2,
        machine="1xa100-40gb",
        accounting=True,
        slurm_conf_extra=AGE,
        settings={"gate": {"wait_s": 20.0}},
    )
    me = desk(lab, 152)
    whole = lab.sbatch("--gpus=1", *QUIET, wrap="sleep 900", user=lab.users[1])
    lab.wait(whole, "RUNNING")
    job = submit(me)
    until(lambda: int(lab.job(job)["Priority"]) > 5000, 150, "it has an age")
    with foreigner(lab, 33000):
        before = int(lab.job(job)["Priority"])
        lab.run(["scancel", str(whole)])
        until(lambda: "put back" in story(me, job), 60, "it is put back")
        row = until(lambda: again_waiting(lab, job), 30, "it is in the queue again")
        until(lambda: int(lab.job(job)["Priority"]) >= before, 20, "it has its place")
        assert row["Restarts"] == "1"
    lab.wait(job, "RUNNING", 120)


def again_waiting(lab: Lab, job: int) -> dict[str, str]:
    """The job as Slurm shows it, once it waits without a hold."""
    row = lab.job(job)
    return row if row["JobState"] == "PENDING" and row["Priority"] != "0" else {}


def occupy(lab: Lab, me: Desk) -> int:
    """A job that keeps the GPU busy, and colocd has seen that."""
    busy = submit(me, wrap=me.train(memory_mib=2000, smact=0.95, work_s=900))
    lab.wait(busy, "RUNNING")
    until(lambda: known_busy(lab, 0), 100, "colocd has looked at a busy GPU")
    return busy


def at_the_gate(lab: Lab, job: int) -> dict[str, str]:
    """The job as Slurm shows it, while a constraint keeps it from starting."""
    row = lab.job(job)
    return row if row["Reason"] == "Constraints" else {}


def gated(make_lab: Callable[..., Lab]) -> Lab:
    """One GPU, a low gate, and a Slurm where age counts."""
    lab = steered(
        make_lab,
        {"smact_gate": 0.3, "max_pin_s": 600.0},
        {"agent": {"window_s": 5}},
        machine="1xa100-40gb",
        accounting=not no_accounting(),
        slurm_conf_extra=f"{PARAMETERS}\n{AGE}",
    )
    until(lambda: extra(lab).get("smact"), 30, "the node has its figure")
    return lab
