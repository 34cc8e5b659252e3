# SPDX-License-Identifier: Apache-2.0
"""Stage watch: writes what each ended job used into its AdminComment in slurmdbd, as jobstats does
(metrics.job_summaries). slurmctld takes no change of a job that has ended.

A job gets it some seconds after its end, when slurmdbd has it. A colocd that starts again looks at
the jobs of the last quarter of an hour once more; what already stands there is not written again.
"""

import time
from collections import Counter
from collections.abc import Sequence

import structlog

from slurm_coloc.core.records.runs import Key, Run
from slurm_coloc.core.report.job_summary import Accounted, comment_with_summary, summary_of
from slurm_coloc.core.slurm.releases import COMMENTS, shown
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context

log = structlog.get_logger()

SETTLED_S = 5.0  # after its end, until slurmdbd is asked for a job
LATEST_S = 900.0  # after its end a job is left without
TRIES = 5
AT_ONCE = 50  # jobs in a round: two commands each
#: by which the ends in colocd's and in slurmdbd's books may differ
CLOCKS_S = 60.0


class Summaries:
    """Where the site wants them."""

    def __init__(self, context: Context) -> None:
        self._wanted = context.config.metrics.job_summaries
        self._store, self._slurm, self._shape = context.store, context.slurm, context.shape
        self._tries: dict[Key, int] = {}

    async def round(self) -> None:
        """One try for each job that ended a moment ago."""
        shape = self._shape()
        if not self._wanted or shape is None:
            return
        if not COMMENTS.holds(shape.release):
            self._stop(f"from Slurm {shown(COMMENTS.first)} on {COMMENTS.what}; this is older")
            return
        now_s = time.time()
        ended = self._store.runs.ended_since(now_s - LATEST_S)
        self._tries = {run.key: self._tries.get(run.key, 0) for run in ended}
        due = [run for run in ended if self._tries[run.key] < TRIES and _settled(run, now_s)]
        for run in in_turn(due)[:AT_ONCE]:
            self._tries[run.key] += 1
            try:
                if await self._write(run):
                    self._tries[run.key] = TRIES
            except SlurmError as err:
                if err.code == "no-accounting":
                    self._stop(err.message)
                    return
                log.warning("job_summaries", jobid=run.job_id, error=err.message)
                return  # slurmdbd may be away: each order waits for it

    def _stop(self, why: str) -> None:
        self._wanted = False
        log.error("job_summaries", error=why, result="none are written until a reload")

    async def _write(self, run: Run) -> bool:
        """Whether nothing is left to do for a run."""
        found = await self._slurm.accounted_use(run.job_id)
        if found is None or not _is_of(run, found):
            return False
        summary = summary_of(run, found.host)
        if summary is None:
            log.info("job_summaries", jobid=run.job_id, result="none: not all of it was measured")
            return True
        comment = comment_with_summary(found.comment, summary)
        if comment is None:
            log.info("job_summaries", jobid=run.job_id, result="none: another text stands there")
        elif comment != found.comment:
            await self._slurm.set_admin_comment(run.job_id, comment)
            log.info("job_summaries", jobid=run.job_id, result="written")
        return True


def in_turn(runs: Sequence[Run]) -> list[Run]:
    """One run of each user, then the next of each: nobody's many jobs keep others from theirs."""
    met: Counter[int] = Counter()
    ranks = []
    for run in runs:
        met[run.uid] += 1
        ranks.append(met[run.uid])
    order = sorted(range(len(runs)), key=lambda number: (ranks[number], number))
    return [runs[number] for number in order]


def _settled(run: Run, now_s: float) -> bool:
    return run.end_s is not None and now_s - run.end_s >= SETTLED_S


def _is_of(run: Run, found: Accounted) -> bool:
    """Whether the newest run in slurmdbd is this one: sacctmgr changes the newest."""
    if run.end_s is None or found.end_s is None:
        return False
    return abs(run.end_s - found.end_s) <= CLOCKS_S
