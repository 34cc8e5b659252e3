# SPDX-License-Identifier: Apache-2.0
"""A trace in a lab: each job is submitted at its time, and all are waited for."""

import sys
import time
from collections.abc import Sequence

from slurm_coloc.errors import SlurmError
from tests.tracelab.records import Played, Run
from tests.tracelab.stage import Stage
from tests.tracelab.workload import Submission

POLL_S = 0.2
#: nothing waits or runs, and no recovery brings anything back, for so long: it is over
SETTLED_S = 20.0
TELL_S = 60.0
#: a submission that comes so much later than the trace says is told
LATE_S = 1.0


def play(
    stage: Stage, jobs: Sequence[Submission], limit_s: float
) -> tuple[Played, list[Submission]]:
    """Submit and wait; what was seen, and the jobs with what was reserved for them indeed. Raises
    SlurmError where not all has ended ``limit_s`` after the beginning (the lab's seconds)."""
    ordered = sorted(jobs, key=lambda one: (one.job.submit_s, one.job.id))
    drawn = stage.joules()
    began_s = time.time()
    ids: dict[int, int] = {}
    late_s = 0.0
    for one in ordered:
        due_s = began_s + stage.scale.of_lab(one.job.submit_s)
        time.sleep(max(0.0, due_s - time.time()))
        ids[one.job.id] = stage.submit(one)
        late_s = max(late_s, time.time() - due_s)
    runs = _wait(stage, ids, began_s + limit_s)
    joules = stage.joules() - drawn
    if late_s > LATE_S:
        stage.said.append(f"a submission took {late_s:.1f} s of the lab")
    given = stage.reserved(jobs, ids)
    if unlike := sum(one != plan for one, plan in zip(given, jobs, strict=True)):
        stage.said.append(f"{unlike} jobs got another reservation than planned; simulated so, too")
    stage.said.append(_beyond(stage, ids, runs))
    ooms = {one.job.id: stage.ooms(one.job.id) for one in jobs}
    return Played(began_s, ids, runs, ooms, joules), given


def _beyond(stage: Stage, ids: dict[int, int], runs: Sequence[Run]) -> str:
    """What runs took of Slurm besides their training, in the trace itself: to be seen beside what
    the probe found before it, which has the Epilog and the next start too."""
    ended = {run.job_id: run.end_s - run.start_s for run in runs if run.completed}
    trained = {ids[job]: stage.trained_s(job) for job in ids}
    more = [
        ended[job] - stage.scale.of_lab(wall_s)
        for job, wall_s in trained.items()
        if wall_s is not None and job in ended
    ]
    mean_s = sum(more) / max(1, len(more))
    return f"from Slurm's start to its end a run took {mean_s:.2f} s of the lab beyond its training"


def _wait(stage: Stage, ids: dict[int, int], until_s: float) -> list[Run]:
    """All runs of these jobs, once each job has come to its end, or nothing moves any more."""
    mine = set(ids.values())
    quiet_s = told_s = time.time()
    while True:
        runs = [run for run in stage.runs() if run.job_id in mine]
        done = {run.job_id for run in runs if run.completed}
        now_s = time.time()
        if done == mine:
            return runs
        if now_s - told_s > TELL_S or now_s > until_s:
            told_s = now_s
            queue = stage.queue()
            if queue:
                quiet_s = now_s
            counts = ", ".join(f"{queue.count(state)} {state}" for state in sorted(set(queue)))
            print(
                f"  {stage.way.name}: {len(done)} of {len(mine)} done, {counts or 'queue empty'}",
                file=sys.stderr,
                flush=True,
            )
            if not queue and now_s - quiet_s > SETTLED_S:
                return runs
        if now_s > until_s:
            raise SlurmError(f"{stage.way.name}: {len(mine - done)} jobs have not ended in time")
        time.sleep(POLL_S)
