# SPDX-License-Identifier: Apache-2.0
"""Jobs that show whether the parts on the hosts work together."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tests.cluster.jobs import mlp_summary
from tests.packages.guide import SHARE, UP
from tests.packages.hosts import CONTROLLER, NODES, Hosts
from tests.rollout.hosts import until

#: runs out of memory in its first run; a model of its own, since one that did does not share again
LIAR = (
    'if [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then sleep 2;'
    ' echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 38.00 GiB. GPU 0 has a'
    ' total capacity of 39.39 GiB of which 37.00 GiB is free." >&2; exit 1; fi; sleep 2'
)


@dataclass(frozen=True, slots=True)
class Life:
    """Jobs in every state at one moment."""

    running: Sequence[int]
    held: int
    begins: int
    behind: int  # waits for a running one
    whole: int


def every_state(hosts: Hosts, sleep_s: int) -> Life:
    """Two shares on the first node that run for ``sleep_s``, one held, one that begins later, one
    that depends on a running one, and a whole GPU of the second node: each node has one left."""
    first, second = NODES
    running = [hosts.sbatch(f"{SHARE} -w {first}", f"sleep {sleep_s}") for _ in range(2)]
    words = f"--gres=gpu:1 --mem=100 -w {second}"
    whole = hosts.sbatch(words, f"sleep {sleep_s}", user="ben")
    for job_id in (*running, whole):
        hosts.wait(job_id, "RUNNING")
    for job_id in running:
        assert "shard" in json.dumps(hosts.job(job_id)["tres_per_node"]), hosts.job(job_id)
    return Life(
        running,
        held=hosts.sbatch(f"{SHARE} --hold"),
        begins=hosts.sbatch(f"{SHARE} --begin=now+{sleep_s}"),
        behind=hosts.sbatch(f"{SHARE} --dependency=afterok:{running[0]}"),
        whole=whole,
    )


def all_end(hosts: Hosts, life: Life, limit_s: float) -> None:
    """Each completes, in its first run, and colocd has recorded each end of a share."""
    hosts.run(CONTROLLER, f"scontrol release {life.held}")
    shares = {*life.running, life.held, life.begins, life.behind}
    for job_id in (*shares, life.whole):
        hosts.wait(job_id, "COMPLETED", limit_s=limit_s)
        assert hosts.job(job_id)["restart_cnt"] == 0, job_id
    until(lambda: hosts.ended(shares), 60, "colocd has recorded their ends")
    assert hosts.states() <= UP


def together(hosts: Hosts, node: str, millions: int) -> None:
    """A share on ``node`` that is fenced, measured and recorded, and one that runs out of memory
    there and comes back; ``millions``: of parameters, of a model that no job has had before."""
    model = f"/home/{millions}m.txt"
    hosts.put("login", model, mlp_summary(millions))
    share = hosts.sbatch(f"{SHARE} -w {node}", "nvidia-smi -L; sleep 3")
    liar = hosts.sbatch(f"--coloc={model} --gpus=1 --mem=100 -w {node}", LIAR)
    hosts.wait(share, "COMPLETED")
    assert "shard" in json.dumps(hosts.job(share)["tres_per_node"]), hosts.job(share)
    assert "GiB for this job" in hosts.output(share), hosts.output(share)
    hosts.wait(liar, "COMPLETED", limit_s=150)
    until(lambda: hosts.outcomes(liar) == ["oom-gpu", "completed"], 60,
          f"job {liar} came back: {hosts.outcomes(liar)}")  # fmt: skip
    until(lambda: hosts.ended({share}), 60, f"job {share} is recorded")
