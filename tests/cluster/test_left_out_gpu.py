# SPDX-License-Identifier: Apache-2.0
"""A node whose gres.conf leaves cards out: Slurm's numbers are none of the device files'."""

import json
import re
import time
from collections.abc import Callable

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import ask, desk, until

LEFT = (2, 3)  # of four cards


def devices(lab: Lab, job_id: int) -> list[tuple[int, str]]:
    """Minor number and UUID of the job's GPUs, as its Prolog found them."""
    state = json.loads((lab.dir / f"nodes/n1/jobs/{job_id}.json").read_text())
    return [(one["minor"], one["uuid"]) for one in state["gpu"]["devices"]]


def trains_on(lab: Lab, job_id: int) -> str:
    until(lambda: "rank 0 on" in lab.output(job_id), 60, f"job {job_id} trains")
    return re.findall(r"rank 0 on (\S+)", lab.output(job_id))[0]


def test_a_job_is_fenced_and_measured_on_the_gpu_that_it_has(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(machine="dgx-station-a100", users=2)
    for name, old, new in (
        ("gres.conf", "/dev/nvidia[0-3]", "/dev/nvidia[2-3]"),
        ("gres.conf", "shard Count=156", "shard Count=78"),
        ("slurm.conf", "gpu:a100:4,shard:156", "gpu:a100:2,shard:78"),
    ):
        text = (lab.dir / name).read_text()
        assert old in text, f"{name} has no {old}"
        (lab.dir / name).write_text(text.replace(old, new))
    for daemon in ("slurmctld", "slurmd-n1"):
        lab.restart(daemon)
    back_s = time.time()
    until(lambda: ask(lab, op="status")["seen_s"] > back_s, 30, "colocd has looked at it")

    first, second = desk(lab, 150), desk(lab, 900, user=1)
    train = first.train(memory_mib=2000, smact=0.1, work_s=600)
    shares = first.submit("--mem=50", wrap=train)
    whole = second.submit("--mem=50", "--coloc-policy=exclusive", "--gres=gpu:1", wrap=train)
    for job_id in (shares, whole):
        where = trains_on(lab, job_id)
        ((minor, uuid),) = devices(lab, job_id)
        assert (minor in LEFT, uuid) == (True, where)
    assert "(MPS)" in lab.output(shares)
