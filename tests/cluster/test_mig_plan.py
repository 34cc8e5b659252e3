# SPDX-License-Identifier: Apache-2.0
"""`coloc mig` and `coloc doctor` against a real colocd and Slurm: what the recorded runs would have
wanted, and the gres.conf of what is cut, which Slurm takes as it was written."""

import time
from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import ask, coloc, desk, until

Make = Callable[..., Lab]
A100 = ("--gpu", "a100-40gb", "--gpus", "2", "--cut", "1")


@pytest.fixture
def lab(make_lab: Make) -> Lab:
    """One A100 whole, one cut."""
    return make_lab(machine="mig-mixed", users=2, settings={"sharing": {"method": "mig"}})


def node(lab: Lab) -> dict[str, str]:
    """The environment of a program on the node."""
    return {
        "COLOC_EMU_LEDGER": f"{lab.dir}/nodes/n1/ledger",
        "LD_LIBRARY_PATH": f"{lab.dir}/lib",
    }


def ran(lab: Lab, user: int, memory_mib: int, work_s: int) -> int:
    """A job that has come to its end, measured."""
    me = desk(lab, 60, user)
    wrap = me.train(memory_mib=memory_mib, smact=0.1, work_s=work_s)
    return me.submit("--mem=50", wrap=wrap)


def test_the_layout_that_the_past_would_have_wanted(lab: Lab) -> None:
    """Of all runs for an admin, of the own for a user: all fit the smallest instance, so seven of
    them are best."""
    jobs = [ran(lab, 0, 1500 + n, 2) for n in range(3)] + [ran(lab, 1, 2500, 2)]

    def recorded() -> bool:
        rows = coloc(lab, "history")["runs"]
        return len([row for row in rows if row["outcome"] == "completed"]) == len(jobs)

    until(recorded, 120, "all are recorded")
    found = coloc(lab, "mig", "plan", *A100)
    assert (found["runs"]["used"], found["runs"]["left_out"]) == (4, 0)
    fits = {one["profile"]: one["runs"] for one in found["fits"]}
    assert fits["1g.5gb"] == fits["7g.40gb"] == 4
    assert found["best"]["unserved"] == 0
    scores = [found["best"]["mean_s"], *(one["mean_s"] for one in found["others"])]
    assert scores == sorted(scores) and found["best"]["mean_s"] <= found["uncut"]["mean_s"]
    mine = coloc(lab, "mig", "plan", *A100, user=lab.users[1])
    assert mine["runs"]["used"] == 1
    told = lab.run(["coloc", "mig", "plan", *A100]).stdout
    assert "4 completed runs, 0 left out" in told
    if found["best"]["layout"]:
        assert found["commands"][0] == "nvidia-smi -i 1 -mig 1"
        assert found["gres"] in told and "gpu:a100:1" in found["gres"]
    none = lab.run(["coloc", "mig", "plan", "--gpu", "t4-16gb"], check=False)
    assert none.returncode == 2 and "has no MIG" in none.stderr


def test_slurm_takes_the_written_gres_conf(lab: Lab) -> None:
    """In place of the lab's own lines; and a job runs on what it names."""
    gres, written = lab.dir / "gres.conf", lab.dir / "mig.conf"
    lab.run(["coloc", "mig", "gres", "--node", "n1", "--gres-conf", str(written)], env=node(lab))
    lines = gres.read_text().splitlines()
    ours = written.read_text().splitlines()
    own = [line for line in lines if "nvidia-cap" in line]
    assert sorted(ours) == sorted(own), "what `coloc mig gres` finds is what the node has"
    rest = [line for line in lines if line not in own]
    gres.write_text("\n".join([*rest[:2], *ours, *rest[2:]]) + "\n")
    lab.restart("slurmctld")
    lab.restart("slurmd-n1")
    until(lambda: "IDLE" in state(lab), 60, "the node is in use again")
    back_s = time.time()
    until(lambda: ask(lab, op="status")["seen_s"] > back_s, 30, "colocd has looked at it")
    job = ran(lab, 0, 1500, 2)
    lab.wait(job, "COMPLETED", 90)
    assert "1g.5gb" in lab.job(job)["TresPerNode"]
    assert "rank 0 on MIG-" in lab.output(job)
    assert "INVAL" not in state(lab) and "DRAIN" not in state(lab)


def state(lab: Lab) -> str:
    """The node's line as Slurm shows it."""
    return lab.run(["scontrol", "show", "node", "n1", "-o"]).stdout.upper()


def test_doctor_finds_the_devices_in_order(lab: Lab) -> None:
    done = lab.run(["coloc", "doctor"], check=False, env=node(lab)).stdout
    rows = {line.split()[1]: line for line in done.splitlines() if len(line.split()) > 2}
    assert rows["mig-profiles"].startswith("ok") and "1g.5gb: 2" in rows["mig-profiles"]
    assert "5 MIG gres are devices of this node, which has 5" in rows["mig-node"]
    gres = lab.dir / "gres.conf"
    text = gres.read_text()
    moved = [line for line in text.splitlines() if "nvidia-cap" in line][-1]
    cap = moved.rpartition("nvidia-cap")[2]
    gres.write_text(text.replace(moved, moved.replace(f"nvidia-cap{cap}", "nvidia-cap7")))
    wrong = lab.run(["coloc", "doctor"], check=False, env=node(lab))
    (row,) = [line for line in wrong.stdout.splitlines() if "mig-node" in line]
    assert not row.startswith("ok"), row
    assert "coloc mig gres" in wrong.stdout
