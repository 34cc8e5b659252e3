# SPDX-License-Identifier: Apache-2.0
"""``coloc explain`` of a job that colocd's own database does not know, from slurmdbd.

The mark in AdminComment stays with every run in slurmdbd, also when slurmctld forgot the job
(MinJobAge, ``slurmctld -c``) and colocd's history was lost. Slurm stores it without any flag. Other
programs may write over it (jobstats does at the end of each run, by sacctmgr): a run that still has
it then tells of the others of its job, and where none has it nobody knows.
"""

import time
from typing import Any

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.core.decide.decision import TEXTS, WITHOUT_ANSWER
from slurm_coloc.core.slurm.job import EndedJob, mark_in
from slurm_coloc.errors import SlurmError

Answer = dict[str, Any]

# A user's requests reach slurmdbd at most once in this time; so many users are remembered.
PAUSE_S = 1.0
ASKERS = 1000


class Accounted:
    """Asks slurmdbd, at most once in PAUSE_S for each user."""

    def __init__(self, slurm: SlurmClient) -> None:
        self._slurm = slurm
        self._asked_s: dict[int, float] = {}

    async def explain(self, job_id: int, uid: int, *, trusted: bool) -> Answer | None:
        """What the marks of this job say. None where no run of it has a mark, where it is somebody
        else's job, or where there is no slurmdbd. ``uid``: of the user who asks."""
        now = time.monotonic()
        if not trusted and now - self._asked_s.get(uid, -PAUSE_S) < PAUSE_S:
            return None
        if len(self._asked_s) > ASKERS:
            self._asked_s.clear()
        self._asked_s[uid] = now
        try:
            runs = await self._slurm.accounted(job_id)
        except SlurmError:
            return None
        return answer_of([run for run in runs if trusted or run.uid == uid], job_id)


def _jobs(runs: list[EndedJob]) -> list[list[EndedJob]]:
    """The runs of each job of this id, which is used again after ``slurmctld -c``: a job has one
    user, and the number of its restarts grows."""
    jobs: list[list[EndedJob]] = []
    for run in runs:
        last = jobs[-1][-1] if jobs else None
        if last is None or run.restarts <= last.restarts or run.uid != last.uid:
            jobs.append([])
        jobs[-1].append(run)
    return jobs


def answer_of(runs: list[EndedJob], job_id: int) -> Answer | None:
    """The answer from a job's runs, oldest first; None where none carries a mark."""
    marked = [(run, mark) for run in runs if (mark := mark_in(run.admin_comment))]
    if not marked:
        return None
    mark = marked[-1][1]
    newest = next(job for job in reversed(_jobs(runs)) if any(run is marked[-1][0] for run in job))
    texts = TEXTS | WITHOUT_ANSWER
    why = texts.get(mark.reason, mark.reason)  # a word of a newer release tells itself
    return {
        "job_id": job_id,
        "source": "slurmdbd",
        "decision": {
            "id": mark.decision,
            "action": mark.action,
            "reason": mark.reason,
            "why": why,
            "shards": mark.shards,
        },
        # A waiting run has no mark in slurmdbd yet; a job before `slurmctld -c` has another one.
        "runs": [
            {
                "restart": run.restarts,
                "uid": run.uid,
                "state": run.state,
                "partition": run.partition,
                "account": run.account,
                "node": run.nodes,
                "tres": run.tres,
                "submit_s": run.submit_s,
                "start_s": run.start_s,
                "end_s": run.end_s,
            }
            for run in newest
            if (its := mark_in(run.admin_comment)) is None or its.decision == mark.decision
        ],
    }
