# SPDX-License-Identifier: Apache-2.0
"""Steered placement on real daemons: where jobs land, GPU by GPU, is what the policy says."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.admin.replay import replay
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, coloc, desk, known, until
from tests.cluster.rules import QUIET, liar, told

Make = Callable[..., Lab]
pytestmark = [
    pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones"),
    pytest.mark.timeout(240),
]


def steered(
    make_lab: Make,
    settings: dict[str, Any] | None = None,
    tables: dict[str, Any] | None = None,
    **wish: Any,
) -> Lab:
    """A lab whose colocd steers, with telemetry of every GPU. ``settings``: of [placement];
    ``tables``: others of coloc.toml. Anyone may share here: what the default of sharing.with makes
    of a job without a pin is tests/cluster/test_users_apart.py's."""
    placement = {"mode": "steered", "interval_s": 1.0, **(settings or {})}
    wish.setdefault("users", 2)
    settings = {"placement": placement, "sharing": {"with": "anyone"}, **(tables or {})}
    lab = make_lab(steered=True, settings=settings, **wish)
    until(lambda: fresh(lab), 40, "every GPU is heard of")
    return lab


def fresh(lab: Lab) -> bool:
    """Whether figures of all GPUs came long enough ago that colocd has looked since."""
    heard = known(lab, "gpus").get("gpus", [])
    looked = all(time.time() - one["at_s"] > 3.0 for one in heard)
    return looked and len(heard) == lab.spec.nodes * lab.spec.cards.gpus


def shares(lab: Lab, node: str = "n1") -> list[int]:
    """Shards in use on each GPU of a node, as Slurm counts them."""
    text = lab.run(["scontrol", "show", "node", "-d", "-o", node]).stdout
    used = re.search(r"GresUsed=(\S+)", text)
    assert used, text
    found = [int(taken) for taken in re.findall(r"\((\d+)/\d+\)", used[1])]
    # 26.05 leaves out a GPU that is taken whole.
    return found + [0] * (lab.spec.cards.gpus - len(found))


def gpu(lab: Lab, job: int) -> str:
    """Node and own type of the GPU that a job asks for; "" where it may have any."""
    row = lab.job(job)
    found = re.search(r"shard:([\w-]+):\d+", row.get("TresPerNode", ""))
    return f"{row['NodeList'] or row['ReqNodeList']}/{found[1]}" if found else ""


def submit(me: Desk, *args: str, wrap: str = "sleep 300", script: str | None = None) -> int:
    """A job that shares. On a loaded machine an estimate may take too long, which makes it a job on
    a whole GPU: then another one."""

    def shared() -> int:
        job = me.submit(*QUIET, *args, wrap=None if script else wrap, script=script)
        if "shard" in me.lab.job(job).get("TresPerNode", ""):
            return job
        me.lab.run(["scancel", str(job)])
        return 0

    return int(until(shared, 30, "a decision in time"))


def test_each_job_gets_the_gpu_with_most_free_memory(make_lab: Make) -> None:
    lab = steered(make_lab)
    me = desk(lab, 300)
    jobs = [submit(me) for _ in range(3)]
    for job in jobs:
        lab.wait(job, "RUNNING")
    assert [gpu(lab, job) for job in jobs] == ["n1/a100-0", "n1/a100-1", "n1/a100-0"]
    one = int(lab.job(jobs[0])["TresPerNode"].rsplit(":", 1)[1])
    assert shares(lab) == [2 * one, one]
    assert "a100-1 by auto" in told(me, jobs[1])
    for path in sorted((lab.dir / "coloc/state/placement").iterdir()):
        assert replay(path).same, path


def wide(lab: Lab, *args: str) -> int:
    """A job of the second user on a whole GPU, without --coloc."""
    return lab.sbatch("--gpus=1", *QUIET, *args, wrap="sleep 300", user=lab.users[1])


@pytest.mark.timeout(400)
def test_a_busy_gpu_gets_no_other_job(make_lab: Make) -> None:
    """The gate on present SM activity; where every GPU is above it a job waits, not for ever."""
    placement = {"policy": "best-fit", "max_pin_s": 12.0, "smact_gate": 0.2, "interval_s": 1.0}
    lab = steered(make_lab, placement, {"agent": {"window_s": 15}})
    me = desk(lab, 300)
    work = me.train(memory_mib=2000, smact=0.95, work_s=900)
    first = submit(me, wrap=work)
    lab.wait(first, "RUNNING")
    assert gpu(lab, first) == "n1/a100-0"
    until(lambda: known_busy(lab, 0), 100, "colocd has looked at a busy first GPU")
    second = submit(me, wrap=work)
    lab.wait(second, "RUNNING")
    assert gpu(lab, second) == "n1/a100-1", "best fit would have taken the fuller one"
    until(lambda: known_busy(lab, 1), 100, "colocd has looked at a busy second GPU")
    waits = submit(me)
    assert lab.job(waits)["JobState"] == "PENDING"
    deadline = time.monotonic() + 10
    while "every GPU with room is too busy" not in (said := told(me, waits)):
        assert time.monotonic() < deadline, said
    lab.wait(waits, "RUNNING", timeout=40)
    assert "it has waited long enough" in told(me, waits)


def known_busy(lab: Lab, index: int) -> bool:
    """Whether a round has seen the GPU above the gate. Figures come every 20 s (agent.beat_s), and
    a submission is placed by those of the last round."""
    gpus = coloc(lab, "gpus")["gpus"]
    one = next(one for one in gpus if one["index"] == index)
    return (one["smact"] or 0.0) > 0.5 and time.time() - one["at_s"] > 5.0


def test_without_telemetry_slurm_places(make_lab: Make) -> None:
    """A stopped agent: what is pinned there is let go, and what comes is not pinned."""
    lab = steered(make_lab, {"stale_s": 5.0})
    me = desk(lab, 300)
    blocker = wide(lab, "--gpus=2")
    lab.wait(blocker, "RUNNING")
    lab.daemon("agent-n1").stop()
    until(lambda: not stale(lab, 8), 30, "telemetry is old")
    first, second = submit(me), submit(me)
    assert gpu(lab, first) == ""
    lab.run(["scancel", str(blocker)])
    for job in (first, second):
        lab.wait(job, "RUNNING")
    count = int(lab.job(first)["TresPerNode"].rsplit(":", 1)[1])
    assert shares(lab) == [2 * count, 0], "first fit"
    lab.daemon("agent-n1").cont()
    until(lambda: stale(lab, 3), 60, "telemetry is fresh")
    third = until(lambda: pinned_one(lab, me), 30, "jobs are pinned again")
    assert gpu(lab, third) == "n1/a100-1"


def stale(lab: Lab, young_s: float) -> bool:
    """Whether the last word of the node is younger than that."""
    gpus = coloc(lab, "gpus")["gpus"]
    return bool(gpus) and time.time() - gpus[0]["at_s"] < young_s


def pinned_one(lab: Lab, me: Desk, *args: str) -> int:
    """A job that was pinned at its submission; 0, and it is cancelled, where it was not."""
    job = submit(me, *args)
    if gpu(lab, job):
        return job
    lab.run(["scancel", str(job)])
    return 0


def test_a_closed_node(make_lab: Make) -> None:
    """Pins leave a node that is drained or reserved; colocd dies in between and goes on."""
    lab = steered(make_lab, nodes=2, machine="1xa100-40gb")
    me = desk(lab, 300)
    first = submit(me)
    lab.wait(first, "RUNNING")
    assert gpu(lab, first) == "n1/a100-0"
    # Held by a dependency, so that it waits in its pin.
    second = submit(me, f"--dependency=afterany:{first}")
    assert gpu(lab, second) == "n2/a100-0"
    lab.colocd.kill()
    lab.run(["scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=test"])
    lab.colocd.start()
    until(lambda: gpu(lab, second) == "", 60, "the pin is gone")
    assert lab.job(second)["ReqNodeList"] in ("", "(null)")
    assert "its node is closed" in told(me, second)
    lab.run(["scancel", str(first)])
    assert lab.wait(second, "RUNNING")["NodeList"] == "n1"
    lab.run(["scontrol", "update", "NodeName=n2", "State=RESUME"])
    hold = "flags=maint,ignore_jobs"
    lab.run(["scontrol", "create", "reservation", "user=root", "starttime=now", "duration=10",
             "nodes=n2", hold])  # fmt: skip
    third = until(lambda: pinned_one(lab, me), 60, "jobs are pinned again")
    # The last look may be older than the reservation: then the next one moves it.
    until(lambda: gpu(lab, third) == "n1/a100-0", 30, "it is sent to the open node")
    assert lab.wait(third, "RUNNING")["NodeList"] == "n1"


def test_a_whole_gpu_job_comes_first(make_lab: Make) -> None:
    """A job of higher priority for a whole GPU: shares do not go where it waits, and start no
    sooner than it."""
    lab = steered(make_lab, machine="1xa100-40gb")
    me = desk(lab, 300)
    runs = submit(me, "--time=10", wrap="sleep 15")
    lab.wait(runs, "RUNNING")
    first = lab.sbatch("--gpus=1", *QUIET, "--time=10", "--hold", wrap="sleep 4",
                       user=lab.users[1])  # fmt: skip
    lab.run(["scontrol", "release", str(first)])
    lab.run(["scontrol", "update", f"JobId={first}", "Priority=900000"])
    until(lambda: lab.job(first)["Reason"] == "Resources", 20, "it waits for the GPU")
    later = submit(me, "--time=20:00")
    until(lambda: "a job before it" in told(me, later) or gpu(lab, later) == "", 20)
    assert lab.job(later)["JobState"] == "PENDING"
    lab.wait(first, "COMPLETED", timeout=60)
    lab.wait(later, "RUNNING")
    began = [lab.job(job)["StartTime"] for job in (first, later)]
    assert began[0] < began[1]


def test_a_waiting_job_is_moved(make_lab: Make) -> None:
    """The world changes under a pin: another GPU will do, or none and then the next."""
    lab = steered(make_lab)
    me = desk(lab, 300)
    first = wide(lab)
    lab.wait(first, "RUNNING")
    held = submit(me, "--begin=now+1hour")
    taken = gpu(lab, held)
    assert taken in ("n1/a100-0", "n1/a100-1")
    other = wide(lab)
    lab.wait(other, "RUNNING")
    assert shares(lab) == [0, 0]
    lab.run(["scontrol", "update", f"JobId={held}", "StartTime=now"])
    until(lambda: gpu(lab, held) == "", 30, "no GPU is free")
    lab.run(["scancel", str(first)])
    lab.wait(held, "RUNNING")


def test_out_of_memory_leaves_the_pin(make_lab: Make) -> None:
    """A recovered job is bound to no node."""
    lab = steered(make_lab, nodes=2, machine="1xa100-40gb")
    me = desk(lab, 310)
    beside = wide(lab, "--nodelist=n2")
    lab.wait(beside, "RUNNING")
    job = submit(me, "--output=o.log", script=liar(before=1, after=1))
    assert gpu(lab, job) == "n1/a100-0"
    blocker = submit(desk(lab, 320))
    lab.wait(blocker, "RUNNING")
    until(lambda: lab.job(job)["Restarts"] == "1", 60, "it is put back")
    until(lambda: lab.job(job)["ReqNodeList"] in ("", "(null)"), 30, "it is bound to no node")
    lab.run(["scancel", str(beside)])
    done = lab.wait(job, "COMPLETED", timeout=60)
    assert done["NodeList"] == "n2"
    assert "gpu" in done["TresPerNode"]


def test_a_request_by_the_model(make_lab: Make) -> None:
    """`gpu:a100:1`, which Slurm would refuse here, with --coloc and without; and an inner srun."""
    lab = steered(make_lab, machine="2xa100-40gb")
    me = desk(lab, 300)
    plain = lab.sbatch("--gres=gpu:a100:1", *QUIET, wrap="srun true; sleep 300", user=me.user)
    row = lab.wait(plain, "RUNNING")
    assert (row["TresPerNode"], row["Features"]) == ("gres/gpu:1", "a100")
    options = lab.sbatch("--gpus=a100:1", "-n1", *QUIET, wrap="srun true", user=me.user)
    lab.wait(options, "COMPLETED")
    shared = until(lambda: pinned_one(lab, me, "--gpus=a100:1"), 30, "it is pinned")
    lab.wait(shared, "RUNNING")
    assert gpu(lab, shared) == "n1/a100-1"
    found = {one["check"]: one for one in doctor(lab)}
    names = ("placement", "placement-features", "placement-hook")
    assert [found[name]["status"] for name in names] == ["ok"] * 3, found


def doctor(lab: Lab) -> list[dict[str, str]]:
    done = lab.run(["coloc", "doctor", "--json"], check=False)
    assert done.stdout.startswith("{"), done.stderr
    checks: list[dict[str, str]] = json.loads(done.stdout)["checks"]
    return checks
