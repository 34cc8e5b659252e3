# SPDX-License-Identifier: Apache-2.0
"""``coloc explain`` of a job that colocd's own database does not know: what slurmdbd kept.

The mark in AdminComment stays with every run in slurmdbd, also when slurmctld forgot the job
(MinJobAge, ``slurmctld -c``) and colocd's history was lost. Slurm stores it without any flag.
"""

import time
from typing import Any

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.core.decide.decision import TEXTS, Reason
from slurm_coloc.core.slurm.job import EndedJob, mark_in
from slurm_coloc.errors import SlurmError

Answer = dict[str, Any]

# One question of a user in this time reaches slurmdbd; so many users are remembered.
PAUSE_S = 1.0
ASKERS = 1000


class Accounted:
    """Asks slurmdbd, seldom enough that nobody can keep Slurm's commands busy with it."""

    def __init__(self, slurm: SlurmClient) -> None:
        self._slurm = slurm
        self._asked_s: dict[int, float] = {}

    async def explain(self, job_id: int, uid: int, *, trusted: bool) -> Answer | None:
        """What the marks of this job say; None where there is no such job with a mark, where it is
        somebody else's, or where there is no slurmdbd. ``uid``: who asks."""
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


def answer_of(runs: list[EndedJob], job_id: int) -> Answer | None:
    """The answer from a job's runs, oldest first; None where none carries a mark."""
    marked = [(run, mark) for run in runs if (mark := mark_in(run.admin_comment))]
    if not marked:
        return None
    mark = marked[-1][1]
    try:
        why = TEXTS[Reason(mark.reason)]
    except ValueError:
        why = mark.reason  # written by a newer release
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
        # A run in the queue has no mark in slurmdbd yet; a job of that id before `slurmctld -c`
        # has another one.
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
            for run, its in marked
            if its.decision == mark.decision
        ],
    }
