# SPDX-License-Identifier: Apache-2.0
"""Two users never meet on one GPU where the site does not say so, in the default configuration: on
a real Slurm, natively without and with ExclusiveUser, and by pins.

Tests have models of their own: what one run measured is remembered.
"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, shards, until
from tests.cluster.rules import QUIET, on_whole_gpu
from tests.cluster.test_gate import story, undrained

Make = Callable[..., Lab]
#: the default of the key, which a lab would else set to "anyone"
DEFAULT: dict[str, Any] = {"sharing": {"with": "user"}}
QUICK = {"gate": {"wait_s": 5.0, "exclude_s": 20.0}}
pytestmark = pytest.mark.timeout(240)


def gpu(me: Desk, job: int) -> str:
    """The GPU of a job that runs, as its Prolog told colocd."""
    me.lab.wait(job, "RUNNING")
    runs = until(lambda: me.explain(job)["runs"][-1]["gpu_uuids"], 30, "its GPU is known")
    return str(runs[0])


def submit(me: Desk, *args: str, wrap: str = "sleep 300") -> int:
    return me.submit(*QUIET, *args, wrap=wrap)


def reason(me: Desk, job: int) -> str:
    return str(me.explain(job)["decision"]["reason"])


@pytest.mark.smoke
def test_natively_a_job_gets_a_gpu_of_its_own_and_why(make_lab: Make) -> None:
    """Slurm's first fit would put ben on ada's GPU while the other is idle."""
    lab = make_lab(settings=DEFAULT)
    ada, ben = desk(lab, 171, user=0), desk(lab, 172, user=1)
    first, second = submit(ada), submit(ben)
    assert gpu(ada, first) != gpu(ben, second)
    assert on_whole_gpu(lab.job(first)) and on_whole_gpu(lab.job(second))
    assert (reason(ada, first), reason(ben, second)) == ("sharing-with", "sharing-with")
    done = lab.run(["coloc", "doctor"], check=False)
    assert done.returncode == 1
    for way in ("steered", "ExclusiveUser=YES", 'sharing.with = "anyone"'):
        assert way in done.stdout


@pytest.mark.smoke
def test_exclusive_user_gives_shares_to_one_user_at_a_time(make_lab: Make) -> None:
    lab = make_lab(exclusive_user=True)
    ada, ben = desk(lab, 173, user=0), desk(lab, 174, user=1)
    jobs = [submit(ada) for _ in range(2)]
    assert gpu(ada, jobs[0]) == gpu(ada, jobs[1])
    other = submit(ben)
    assert shards(lab.job(other)), "it shares, when its turn comes"
    assert lab.job(other)["JobState"] == "PENDING"
    bound = until(lambda: ben.explain(other)["binding"], 20, "what binds it")
    assert "another user's jobs alone" in bound["text"]
    lab.run(["scancel", *map(str, jobs)])
    lab.wait(other, "RUNNING", 60)
    told = lab.run(["coloc", "doctor"], check=False).stdout
    assert "sharing-with" in told and "ExclusiveUser=YES" in told


def met(make_lab: Make, **gate: Any) -> tuple[Lab, Desk, int, int]:
    """A share of ben's that Slurm starts on ada's GPU: ExclusiveUser was taken away while both
    waited. (Of nodes that a job has already Slurm keeps others off until that one ends.) The lab,
    ben's desk, ada's job and ben's."""
    lab = make_lab(exclusive_user=True, settings={"gate": QUICK["gate"] | gate})
    ada, ben = desk(lab, 175, user=0), desk(lab, 176, user=1)
    first = submit(ada, "--hold", wrap=ada.train(memory_mib=2000, smact=0.1, work_s=600))
    work = ben.train(memory_mib=2000, smact=0.1, work_s=1)
    second = submit(ben, "--hold", wrap=f"{work}; echo trained")
    assert shards(lab.job(first)) and shards(lab.job(second))
    lab.run(["scontrol", "update", "PartitionName=main", "ExclusiveUser=NO"])
    lab.run(["scontrol", "release", str(first)])
    until(lambda: "step " in lab.output(first), 60, "ada's trains")
    lab.run(["scontrol", "release", str(second)])
    until(lambda: "another user" in story(ben, second), 60, "its Prolog sees ada's job")
    return lab, ben, first, second


@pytest.mark.smoke
def test_a_share_that_meets_another_user_is_put_back(make_lab: Make) -> None:
    """And runs on a GPU of its own, beside nobody."""
    lab, ben, first, second = met(make_lab)
    why = 'a job of another user runs there (sharing.with = "user"): put back into the queue'
    assert why in story(ben, second)
    assert "trained" not in lab.output(second)
    lab.wait(second, "COMPLETED", 120)
    assert lab.job(first)["JobState"] == "RUNNING"
    assert on_whole_gpu(lab.job(second))
    assert "trained" in lab.output(second) and "not fenced" not in lab.output(second)
    undrained(lab)


@pytest.mark.smoke
def test_after_the_caps_it_runs_and_is_told_that_nothing_fences_it(make_lab: Make) -> None:
    lab, ben, _, second = met(make_lab, max_per_job=0)
    lab.wait(second, "COMPLETED", 60)
    assert "it starts all the same: it was put back 0 times" in story(ben, second)
    assert "not fenced" in lab.output(second)
    undrained(lab)


@pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones")
def test_steered_ben_gets_the_idle_gpu_and_carl_waits(make_lab: Make) -> None:
    """In the default configuration: carl asks for a whole GPU until one is free, then he shares."""
    from tests.cluster.test_steered import gpu as pinned
    from tests.cluster.test_steered import steered
    from tests.cluster.test_steered import submit as share

    lab = steered(make_lab, tables=DEFAULT, users=3)
    ada, ben, carl = (desk(lab, 177 + n, user=n) for n in range(3))
    one = share(ada)
    lab.wait(one, "RUNNING")
    other = share(ben)
    lab.wait(other, "RUNNING")
    assert {pinned(lab, one), pinned(lab, other)} == {"n1/a100-0", "n1/a100-1"}
    again = share(ada)
    lab.wait(again, "RUNNING")
    assert pinned(lab, again) == pinned(lab, one), "beside her own"
    third = submit(carl)
    until(lambda: "asks for a whole GPU" in story(carl, third, "place"), 30, "it has no pin")
    assert "gres/gpu:1" in lab.job(third)["TresPerNode"]
    assert lab.job(third)["JobState"] == "PENDING"
    lab.run(["scancel", str(one), str(again)])
    lab.wait(third, "RUNNING", 60)


@pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones")
def test_a_pin_is_on_a_node_that_slurm_may_give_to_its_user(make_lab: Make) -> None:
    """Each GPU but one of ada's is idle, and a pin on a node of hers would wait until she has left
    it. One of them has her job for CPUs alone."""
    from tests.cluster.test_steered import steered

    lab = steered(make_lab, tables=DEFAULT, nodes=3, exclusive_user=True)
    ada, ben = desk(lab, 195, user=0), desk(lab, 196, user=1)
    hers = submit(ada, "--nodelist=n1")
    plain = lab.sbatch("--nodelist=n2", *QUIET, wrap="sleep 300", user=lab.users[0])
    for job in (hers, plain):
        lab.wait(job, "RUNNING", 60)
    time.sleep(5)  # colocd looks once a second
    his = [submit(ben) for _ in range(2)]
    for job in his:
        lab.wait(job, "RUNNING", 60)
    assert {lab.job(job)["NodeList"] for job in his} == {"n3"}
    third = submit(ada)
    lab.wait(third, "RUNNING", 60)
    assert lab.job(third)["NodeList"] in ("n1", "n2")
