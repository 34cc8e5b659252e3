# SPDX-License-Identifier: Apache-2.0
"""A job that waits at the gate of steered placement keeps its age, and so its place (core/parking).

Its age is a part of its priority only with slurmdbd; when it began counts without one too.
"""

import time
from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.rules import QUIET
from tests.cluster.test_node_gate import PARAMETERS, extra
from tests.cluster.test_order import no_accounting
from tests.cluster.test_steered import active, fresh, gpu, steered, submit

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
    assert row["AccrueTime"] == row["SubmitTime"]
    before = int(row["Priority"])
    # Others pass: one for CPUs has no priority at all beside it.
    passes = lab.sbatch("-n1", *QUIET, wrap="true", user=lab.users[1])
    lab.wait(passes, "COMPLETED")
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


def occupy(lab: Lab, me: Desk) -> int:
    """A job that keeps the GPU busy, and colocd has seen that."""
    busy = submit(me, wrap=me.train(memory_mib=2000, smact=0.95, work_s=900))
    lab.wait(busy, "RUNNING")
    until(lambda: active(lab, 0) > 0.35, 60, "the activity shows")
    time.sleep(2.5)  # two looks
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
