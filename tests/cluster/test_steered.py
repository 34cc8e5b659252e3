# SPDX-License-Identifier: Apache-2.0
"""Steered placement on real daemons: where jobs land, GPU by GPU, is what the policy says."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.flow.replay import replay
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.rules import QUIET, told

Make = Callable[..., Lab]
pytestmark = [
    pytest.mark.needs_slurm("24.11", "does not change the shards of a waiting job to typed ones"),
    pytest.mark.timeout(240),
]


def steered(make_lab: Make, settings: dict[str, Any] | None = None, **wish: Any) -> Lab:
    """A lab whose colocd steers, with telemetry of every GPU."""
    placement = {"mode": "steered", "interval_s": 1.0, **(settings or {})}
    wish.setdefault("users", 2)
    lab = make_lab(steered=True, settings={"placement": placement}, **wish)
    until(lambda: fresh(lab), 40, "every GPU is heard of")
    return lab


def fresh(lab: Lab) -> bool:
    """Whether colocd has seen figures of all GPUs."""
    done = lab.run(["coloc", "gpus", "--json"], check=False)
    heard = json.loads(done.stdout)["gpus"] if done.returncode == 0 else []
    return len(heard) == lab.spec.nodes * lab.spec.cards.gpus


def shares(lab: Lab, node: str = "n1") -> list[int]:
    """Shards in use on each GPU of a node, as Slurm counts them."""
    text = lab.run(["scontrol", "show", "node", "-d", "-o", node]).stdout
    used = re.search(r"GresUsed=(\S+)", text)
    assert used, text
    return [int(taken) for taken in re.findall(r"\((\d+)/\d+\)", used[1])]


def gpu(lab: Lab, job: int) -> str:
    """Node and own type of the GPU that a job asks for; "" where it may have any."""
    row = lab.job(job)
    found = re.search(r"shard:([\w-]+):\d+", row["TresPerNode"])
    return f"{row['NodeList'] or row['ReqNodeList']}/{found[1]}" if found else ""


def submit(me: Desk, *args: str, seconds: int = 300) -> int:
    return me.submit(*QUIET, *args, wrap=f"sleep {seconds}")


def test_each_job_gets_the_gpu_with_most_free_memory(make_lab: Make) -> None:
    lab = steered(make_lab)
    me = desk(lab, 300)
    jobs = [submit(me) for _ in range(3)]
    for job in jobs:
        lab.wait(job, "RUNNING")
    assert [gpu(lab, job) for job in jobs] == ["n1/a100-0", "n1/a100-1", "n1/a100-0"]
    one = int(lab.job(jobs[0])["TresPerNode"].rsplit(":", 1)[1])
    assert shares(lab) == [2 * one, one]
    assert "a100-1 by magm" in told(me, jobs[1])
    for path in sorted((lab.dir / "coloc/state/placement").iterdir()):
        assert replay(path).same, path
