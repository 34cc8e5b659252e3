# SPDX-License-Identifier: Apache-2.0
"""What a start costs: seconds of the lab that a run takes of its GPU besides its training.

Slurm's own times do not shrink with the jobs: Prolog and Epilog, the start of a step, the scheduler
between an end and the next start. A chain of short trainings, one after another on one GPU while
the others are taken, tells their sum. It is measured before and after the
trace, and the mean is told to the simulator.
"""

import time

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import SlurmError
from slurm_coloc.lab import procs
from slurm_coloc.sim.trace import TraceJob
from tests.tracelab.stage import Stage
from tests.tracelab.workload import SHARD_MIB, Submission

#: links of the chain, and seconds of the lab that each trains
CHAIN, LINK_S = 8, 1.0
LIMIT_S = 300.0


def start_cost_s(stage: Stage) -> float:
    """Mean seconds of the lab. Raises SlurmError where the chain does not end."""
    others = stage.lab.spec.cards.gpus - 1
    if others:
        blocker = stage.lab.sbatch(
            f"--gpus={others}", "--mem=100", "--output=/dev/null", wrap="sleep 600", user=stage.user
        )
        stage.lab.wait(blocker, "RUNNING")
    link = _link(stage)
    before = len(stage.runs())
    began = time.monotonic()
    for _ in range(CHAIN):
        stage.submit(link, quiet=True)
    if not procs.wait_until(lambda: len(stage.runs()) >= before + CHAIN, LIMIT_S):
        raise SlurmError(f"{CHAIN} short trainings have not ended within {LIMIT_S:g} s")
    took_s = time.monotonic() - began
    stage.lab.clear()
    return max(0.0, took_s / CHAIN - LINK_S)


def _link(stage: Stage) -> Submission:
    """A training that leaves no room for another beside it, submitted as the jobs of the trace."""
    shards = stage.shards_per_gpu - 1 if stage.way.shares else 0
    work_s = stage.scale.of_trace(LINK_S)
    job = TraceJob(0, "probe", 0.0, 1, work_s, SHARD_MIB, Activity(0.1))
    return Submission(job, shards)
