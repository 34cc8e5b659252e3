# SPDX-License-Identifier: Apache-2.0
"""Stage measure, overruns: jobs that hold more of a GPU than they were promised.

Judged at each sample by what the job's own processes hold (core/gpu/overrun), noted in the run's
record at begin and end, logged, and told to colocd by a heartbeat that does not wait for its time.
What was promised is what colocd told the Prolog.
"""

import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import structlog

from slurm_coloc.core.gpu.overrun import Change, Watch, words
from slurm_coloc.core.gpu.telemetry.reading import Held, Reading
from slurm_coloc.core.gpu.telemetry.use import RunUse
from slurm_coloc.flow.node.jobs_here import Job

log = structlog.get_logger()

MOST_NOTED = 8  # of one run: its record has room for twenty events of all kinds
TOLD_S = 60.0  # so long an end is in the heartbeats

Key = tuple[int, int, str]  # job, restart, GPU


class Begun(NamedTuple):
    """An overrun that has just begun, with the processes that hold memory there."""

    job: Job
    use: RunUse
    uuid: str
    change: Change
    held: tuple[Held, ...]


class Overruns:
    """Of this node. ``news``: something began or ended since the last heartbeat."""

    def __init__(self, context_mib: int, *, ends: bool) -> None:
        """``context_mib``: of one process, where colocd did not tell the Prolog; ``ends``: the
        agent will end the processes of an overrun."""
        self._context_mib = context_mib
        self._ends = ends
        self._watches: dict[Key, Watch] = {}
        self._over: dict[tuple[Key, float], tuple[float, Change]] = {}
        self._begun: list[Begun] = []
        self.news = False
        self.count = 0  # that began

    def see(self, job: Job, use: RunUse, mine: Sequence[Reading], now_s: float) -> None:
        """Take a sample of a run: of the GPUs that it has, and those where it holds memory."""
        seen = set()
        for reading in mine:
            seen.add(reading.uuid)
            promised = job.promised_on(reading.uuid)
            if promised is not None:
                held = tuple(one for one in reading.held if one.job_id == job.job_id and one.mib)
                self._judge(job, use, reading.uuid, held, promised, now_s)
        for key, watch in self._watches.items():
            elsewhere = key[2] not in seen and key[2] not in job.uuids
            if key[:2] == (job.job_id, job.restart) and elsewhere and (change := watch.end()):
                self._note(key, use, change, now_s)

    def _judge(
        self,
        job: Job,
        use: RunUse,
        uuid: str,
        held: tuple[Held, ...],
        promised_mib: int,
        now_s: float,
    ) -> None:
        key = (job.job_id, job.restart, uuid)
        watch = self._watches.setdefault(key, Watch())
        context_mib = self._context_mib if job.context_mib is None else job.context_mib
        change = watch.see(now_s, [one.mib for one in held], promised_mib, context_mib)
        if change is None:
            return
        self._note(key, use, change, now_s)
        if change.state == "begun":
            self.count += 1
            self._begun.append(Begun(job, use, uuid, change, held))
            if self._ends:  # already now: the run's end may come before anything else is written
                pids = ", ".join(str(one.pid) for one in held[:8])
                text = f"the agent ends what holds it (process {pids}): fence.overrun is end"
                self.note(use, "ended", text, uuid, change, now_s)

    def _note(self, key: Key, use: RunUse | None, change: Change, now_s: float) -> None:
        job_id, restart, uuid = key
        self.news = True
        if change.state == "over":
            self._over[key, change.since_s] = (now_s, change)
        text = words(change, uuid)
        log.warning(
            "overrun",
            jobid=job_id,
            restart=restart,
            state=change.state,
            gpu=uuid,
            held_mib=change.held_mib,
            promised_mib=change.promised_mib,
        )
        if use is not None:
            self.note(use, change.state, text, uuid, change, now_s)

    def note(
        self, use: RunUse, state: str, text: str, uuid: str, change: Change, now_s: float
    ) -> None:
        """Write an event of an overrun into the run's record."""
        figures = {"held_mib": change.held_mib, "promised_mib": change.promised_mib}
        use.note(now_s, "overrun", text, MOST_NOTED, state=state, uuid=uuid, **figures)

    def keep(self, runs: Collection[tuple[int, int]], now_s: float) -> None:
        """Forget the runs that are not among these: they have ended."""
        for key in [key for key in self._watches if key[:2] not in runs]:
            if change := self._watches.pop(key).end():
                self._note(key, None, change, now_s)

    def over_mib(self) -> dict[tuple[int, str], int]:
        """What jobs hold now above what they were promised, by job and GPU (or MIG device)."""
        lasting = [(key, one.now) for key, one in list(self._watches.items())]
        return {(k[0], k[2]): now.held_mib - now.promised_mib for k, now in lasting if now}

    def begun(self) -> list[Begun]:
        """What has begun since the last call."""
        found, self._begun = self._begun, []
        return found

    def for_heartbeat(self) -> list[dict[str, Any]]:
        """For a heartbeat: what lasts, and what ended a moment ago."""
        self.news = False
        old_s = time.time() - TOLD_S
        ended = list(self._over.items())  # another thread adds to it
        for known, (at_s, _) in ended:
            if at_s < old_s:
                del self._over[known]
        lasting = [(key, one.now, None) for key, one in list(self._watches.items()) if one.now]
        over = [(key, change, at_s) for (key, _), (at_s, change) in ended if at_s >= old_s]
        return [
            {
                "job_id": key[0],
                "restart": key[1],
                "uuid": key[2],
                "since_s": round(change.since_s, 3),
                "held_mib": change.held_mib,
                "promised_mib": change.promised_mib,
                "until_s": until_s and round(until_s, 3),
            }
            for key, change, until_s in [*lasting, *over]
        ]
