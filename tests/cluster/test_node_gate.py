# SPDX-License-Identifier: Apache-2.0
"""Native placement: Slurm's own gate on nodes' SM activity, kept fresh by colocd."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, until
from tests.cluster.rules import QUIET
from tests.cluster.test_steered import submit

PARAMETERS = (
    "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1,"
    "extra_constraints"
)


def extra(lab: Lab, node: str = "n1") -> dict[str, Any]:
    """A node's Extra."""
    text = lab.run(["scontrol", "show", "node", "-o", node]).stdout
    found = re.search(r"Extra=(\{\S*\})", text)
    return json.loads(found[1]) if found else {}


@pytest.mark.needs_slurm("23.11", "no extra_constraints")
@pytest.mark.timeout(400)
def test_a_busy_node_takes_no_shared_job(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(
        users=1,
        machine="1xa100-40gb",
        slurm_conf_extra=PARAMETERS,
        settings={
            "placement": {"node_gate": True, "smact_gate": 0.3, "interval_s": 1.0},
            "agent": {"window_s": 15},
        },
    )
    until(lambda: "smact" in extra(lab), 30, "the node has its figure")
    lab.run(["scontrol", "update", "NodeName=n1", 'Extra={"rack":"b7"}'])
    until(lambda: "smact" in extra(lab), 30, "the node has its figure again")
    assert extra(lab)["rack"] == "b7", "other keys stay"
    me = desk(lab, 300)
    first = submit(me, wrap=me.train(memory_mib=2000, smact=0.95, work_s=900))
    assert lab.wait(first, "RUNNING")["Extra"] == "smact<30&(coloc=1)"
    until(lambda: extra(lab)["smact"] > 30, 110, "the activity shows")
    second = submit(me)
    until(lambda: lab.job(second)["Reason"] == "Constraints", 20, "it waits for a quieter node")
    whole = lab.sbatch("-n1", *QUIET, wrap="true", user=me.user)
    lab.wait(whole, "COMPLETED")
    # colocd is killed: nobody keeps the figure fresh, and the node's agent opens the gate.
    lab.colocd.kill()
    assert extra(lab)["smact"] > 30
    assert figures(lab)["status"] == "warn"
    until(lambda: extra(lab)["smact"] == 0, 100, "the agent opens the node")
    assert extra(lab)["rack"] == "b7"
    lab.wait(second, "RUNNING")
    lab.colocd.start()
    until(lambda: extra(lab)["smact"] > 30, 60, "the figure is back with colocd")
    assert figures(lab)["status"] == "ok"
    # An orderly end of colocd opens the gate itself.
    lab.colocd.term()
    assert extra(lab)["smact"] == 0


@pytest.mark.needs_slurm("23.11", "no extra_constraints")
@pytest.mark.timeout(240)
def test_a_quiet_node_elsewhere_dooms_nobody(make_lab: Callable[..., Lab]) -> None:
    """A job of another partition waits for its own node. Where a constraint only leaves nodes that
    a job cannot have, Slurm holds it for ever: colocd frees it."""
    lab = make_lab(
        users=1,
        nodes=2,
        machine="1xa100-40gb",
        slurm_conf_extra=f"{PARAMETERS}\nPartitionName=one Nodes=n1 State=UP",
        settings={
            "placement": {"node_gate": True, "smact_gate": 0.3, "interval_s": 1.0},
            "agent": {"window_s": 5},
        },
    )
    until(lambda: all("smact" in extra(lab, name) for name in ("n1", "n2")), 30, "figures")
    me = desk(lab, 300)
    busy = submit(me, "-pone", wrap=me.train(memory_mib=2000, smact=0.95, work_s=900))
    lab.wait(busy, "RUNNING")
    until(lambda: extra(lab)["smact"] > 30 > extra(lab, "n2")["smact"], 60, "n1 is busy, n2 not")
    bound = submit(me, "-pone")
    until(lambda: lab.job(bound)["Reason"] == "Constraints", 20, "it waits for its own node")
    free = submit(me)
    assert lab.wait(free, "RUNNING")["NodeList"] == "n2"
    # As an earlier version asked, or an owner's scontrol update of the partition may leave it.
    lab.run(["scontrol", "update", f"JobId={bound}", "Extra=smact<30"])
    lab.wait(bound, "RUNNING")
    assert lab.job(bound)["Extra"] == "smact>=0"


def figures(lab: Lab) -> dict[str, str]:
    """What doctor says of the nodes' figures."""
    done = lab.run(["coloc", "doctor", "--json"], check=False)
    found = {one["check"]: one for one in json.loads(done.stdout)["checks"]}
    return dict(found["node-gate-figures"])
