# SPDX-License-Identifier: Apache-2.0
"""Stage watch, pairs: learns how fast trainings are beside each other from the logs of runs that
were alone on their GPU for a while and beside one other for a while (agent.log_read_s).

What a user's log claims changes what is expected of that user's own jobs and of nobody else's.
"""

import time
from collections.abc import Mapping
from math import log

from slurm_coloc.core.records.pairs import PairSpeed, training_of
from slurm_coloc.core.records.runs import Key, PresentRun
from slurm_coloc.core.time.progress.pace import Mark
from slurm_coloc.core.time.progress.phases import ALONE, Phases
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.cluster.telemetry import ProgressNow
from slurm_coloc.flow.time.neighbours import Neighbours

#: looks at a log that are left out after a change of neighbours, and the least of a stretch: its
#: ends are known to a look each, so its pace to a tenth
SETTLE_READS, LEAST_READS = 2, 20


class _Run:
    """A run that goes on, with what its speeds are noted under."""

    def __init__(self, run: PresentRun, phases: Phases) -> None:
        self.uid, self.training = run.uid, training_of(run.fingerprint, run.options)
        self.card, self.method, self.phases = "", "", phases


class PairSpeeds:
    """Follows the runs; what it knows of one that goes on is lost when colocd ends."""

    def __init__(self, context: Context) -> None:
        self._store, self._live = context.store, context.live
        self._read_s = context.config.agent.log_read_s
        self._runs: dict[Key, _Run] = {}

    def see(self, neighbours: Neighbours) -> None:
        """One look at all runs."""
        if not self._read_s:
            return
        said = self._live.all_progress()
        going: dict[Key, _Run] = {}
        for uuid, there in neighbours.by_gpu().items():
            now = [run for run in there if run.open]
            for run in now:
                if len(run.gpu_uuids or ()) != 1 or not run.fingerprint:
                    continue
                one = going[run.key] = self._runs.get(run.key) or self._begun(run)
                self._follow(one, run, now, neighbours, uuid, said)
        for key in self._runs.keys() - going.keys():
            self._learn(self._runs[key], self._runs[key].phases.end())
        self._runs = going

    def _begun(self, run: PresentRun) -> _Run:
        return _Run(run, Phases(SETTLE_READS * self._read_s, LEAST_READS * self._read_s))

    def _follow(
        self,
        one: _Run,
        run: PresentRun,
        now: list[PresentRun],
        neighbours: Neighbours,
        uuid: str,
        said: Mapping[tuple[int, int], ProgressNow],
    ) -> None:
        gpu = neighbours.gpus.get(uuid)
        beside = None
        if gpu is not None and not neighbours.strangers(gpu, now):
            beside = _beside([other for other in now if other is not run])
        told = said.get((run.job_id, run.restart))
        mark = None
        if told is not None and told.done is not None and told.said_s is not None:
            mark = Mark(told.said_s, told.done)
        if one.phases.see(neighbours.now_s, beside, mark):
            self._learn(one, one.phases.new_speeds())
        if gpu is not None and len(now) > 1:
            one.card, one.method = gpu.name, neighbours.method(now)

    def _learn(self, one: _Run, speeds: Mapping[str, float]) -> None:
        for beside, speed in speeds.items():
            self._store.pairs.learn(
                PairSpeed(
                    uid=one.uid,
                    training=one.training,
                    beside=beside,
                    card=one.card,
                    method=one.method,
                    runs=1.0,
                    log_speed=log(speed),
                    at_s=time.time(),
                )
            )


def _beside(others: list[PresentRun]) -> str | None:
    """The training of a run's one neighbour; ALONE without any; None where that says nothing."""
    if not others:
        return ALONE
    if len(others) > 1:
        return None
    return training_of(others[0].fingerprint, others[0].options) or None
