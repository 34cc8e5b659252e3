# SPDX-License-Identifier: Apache-2.0
"""What the scheduler learns of jobs while a trace is played: their run times and their memory."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.sim.floor import Floor
from slurm_coloc.sim.forecast import Forecast, Logs
from slurm_coloc.sim.outcome import Record
from slurm_coloc.sim.search.run_times import Expected
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob
from slurm_coloc.sim.waiting import Waiting

#: above a measured peak: what runs of one training differ by, with allocator and cuDNN's choices
MARGIN = 1.03
SHARD_MIB = 1024
#: jobs, the first of the queue, of which something else is expected when something is learned
LEARNS = 200


@dataclass(slots=True)
class Peaks:
    """Per training (name and GPUs) the largest peak of its ended runs, in MiB of one GPU."""

    largest: dict[tuple[str, int], int] = field(default_factory=dict)

    def learn(self, job: TraceJob) -> None:
        """A run ended by itself, so its peak was measured."""
        if job.name:
            key = (job.name, job.gpus)
            self.largest[key] = max(job.memory_mib, self.largest.get(key, 0))

    def applied(
        self, job: TraceJob, request: PlaceRequest, holds: Callable[[PlaceRequest], bool]
    ) -> PlaceRequest:
        """The request with the peak of its training; unchanged where none is known. ``holds``:
        whether shared GPUs could hold a request. A job that did not ask to share stays as it is."""
        peak_mib = self.largest.get((job.name, job.gpus))
        if peak_mib is None or not job.coloc:
            return request
        need = math.ceil(peak_mib * MARGIN / SHARD_MIB) * SHARD_MIB
        known = replace(request, need_mib=need, share=True)
        return known if holds(known) else replace(request, need_mib=None, share=False)


class Knowledge:
    """Keeps what is expected of waiting and running jobs up to date. ``seed``: of what is learned
    of run times, where that errs. ``records``: of all jobs by id."""

    def __init__(
        self,
        setting: Setting,
        seed: str,
        floor: Floor,
        waiting: Waiting,
        records: Mapping[int, Record],
    ) -> None:
        self._setting, self._floor, self._waiting = setting, floor, waiting
        self._records = records
        logs = Logs(setting.logs, seed) if setting.logs else None
        self._forecast = Forecast(
            setting.expect_runs, setting.guess_runs, setting.run_error, seed, logs
        )
        self._peaks = Peaks()

    def with_peak(self, job: TraceJob, request: PlaceRequest) -> PlaceRequest:
        """A request with the peak of ended runs of the same training, where that counts."""
        if not self._setting.learn_peaks:
            return request
        return self._peaks.applied(job, request, self._floor.pool_holds)

    def with_run_time(self, job: TraceJob, request: PlaceRequest, now_s: float) -> PlaceRequest:
        """A request with the run time that is expected of it."""
        return _expecting(request, self._forecast.expect(job, self._running(now_s)))

    def ended(self, job: TraceJob, now_s: float) -> None:
        """A run ended by itself, so more is known of those that wait and of those that run."""
        self._forecast.learn(job)
        self._peaks.learn(job)
        if self._setting.guess_runs or self._setting.learn_peaks or self._setting.logs:
            self._expect_again(now_s)

    def read_logs(self, now_s: float) -> None:
        """What the logs say now: of those that run, and the first time also of those like them."""
        if self._forecast.news(self._running(now_s)):
            self._expect_again(now_s)
            return
        for run in self._floor.runs.values():
            logged = self._forecast.log(run.job, run.done_s(now_s))
            if logged is not None:
                run.request = _expecting(run.request, logged)
                run.expect(now_s)

    def _running(self, now_s: float) -> list[tuple[TraceJob, float]]:
        """Jobs that run and the seconds alone that each has done, where guesses need them."""
        if not (self._setting.guess_runs or self._setting.logs):
            return []
        return [(run.job, run.done_s(now_s)) for run in self._floor.runs.values()]

    def _expect_again(self, now_s: float) -> None:
        running = self._running(now_s)
        for request in list(self._waiting.first(max(LEARNS, self._setting.depth))):
            record = self._records[request.id]
            news = _expecting(request, self._forecast.expect(record.job, running))
            if not record.oom:
                news = self.with_peak(record.job, news)
            if news != request:
                self._waiting.update(news)
        for run in self._floor.runs.values():
            run.request = _expecting(run.request, self._forecast.expect(run.job, running))
            run.expect(now_s)


def _expecting(request: PlaceRequest, found: Expected | None) -> PlaceRequest:
    """The request with what is expected of its run time."""
    if found is None:
        return replace(request, run_s=None, run_spread=0.0)
    return replace(request, run_s=found.run_s, run_spread=found.spread)
