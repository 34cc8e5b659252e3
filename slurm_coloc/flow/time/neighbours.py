# SPDX-License-Identifier: Apache-2.0
"""Which jobs run beside each other on the GPUs now, and how much that slows each: from the runs by
the Prologs and the activities by the agents, else the expected ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from slurm_coloc.core.decide import slowdown
from slurm_coloc.core.decide.slowdown import Beside, Load
from slurm_coloc.core.gpu.telemetry.window import SPAN_S
from slurm_coloc.core.records.runs import Key, PresentRun
from slurm_coloc.flow.cluster.telemetry import GpuNow, JobThere


@dataclass(slots=True)
class Pressed:
    """A run on its slowest GPU. ``speed``: its present one (1 = alone); ``others``: the jobs there;
    ``mine``: its SM activity alone; ``least``: what it has surely; ``alone_now``: its activity
    where it is measured alone now."""

    speed: float = 1.0
    others: frozenset[int] = frozenset()
    mine: float = slowdown.BUSY
    least: float = 0.0
    method: str = "mps"
    beside: list[Beside] = field(default_factory=list)
    alone_now: float | None = None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """``runs``: those that go on or ended lately, oldest first; ``gpus``: the agents' fresh figures
    by UUID, means over ``span_s``; ``alone``: activities measured alone; ``turns``: no MPS;
    ``everybody``: one MPS server for all users."""

    runs: list[PresentRun]
    gpus: Mapping[str, GpuNow]
    alone: Mapping[Key, float]
    now_s: float
    turns: bool = False
    everybody: bool = False
    span_s: float = SPAN_S

    def by_gpu(self) -> dict[str, list[PresentRun]]:
        found: dict[str, list[PresentRun]] = {}
        for run in self.runs:
            for uuid in run.gpu_uuids or ():
                found.setdefault(uuid, []).append(run)
        return found

    def pressed(self, since_s: Mapping[Key, float]) -> dict[Key, Pressed]:
        """Every run that goes on, with its neighbours since ``since_s``, by default now."""
        found: dict[Key, Pressed] = {}
        for uuid, there in self.by_gpu().items():
            for one, state in self._of_gpu(self.gpus.get(uuid), there, since_s):
                before = found.get(one.key)
                # A job of several GPUs is as fast as on its slowest one.
                if before is None or (state.speed, -len(state.beside)) < (
                    before.speed,
                    -len(before.beside),
                ):
                    found[one.key] = state
        return found

    def _of_gpu(
        self, gpu: GpuNow | None, there: list[PresentRun], since_s: Mapping[Key, float]
    ) -> Iterable[tuple[PresentRun, Pressed]]:
        now = [run for run in there if run.open]
        strangers = self.strangers(gpu, now)
        measured = {one.job_id: one.smact for one in gpu.jobs} if gpu else {}
        young_s = max((self._age(run) for run in there), default=0.0)
        settled = self.now_s - young_s >= self.span_s
        loads = [
            Load(
                self.alone.get(run.key, run.smact),
                measured.get(run.job_id),
                run.key in self.alone,
                settled,
            )
            for run in now
        ]
        loads += [Load(None, one.smact, False, settled) for one in strangers]
        method = self.method(now)
        wishes = slowdown.wishes(loads, gpu.smact if gpu else None, method)
        for place, run in enumerate(now):
            others = wishes[:place] + wishes[place + 1 :]
            speed = slowdown.speed(wishes[place], others, method)
            part = loads[place].now or 0.0
            yield (
                run,
                Pressed(
                    # Alone it could not keep more than all of the GPU busy.
                    max(speed, part) if settled else speed,
                    frozenset(
                        [one.job_id for one in now if one is not run]
                        + [one.job_id for one in strangers]
                    ),
                    wishes[place],
                    part if settled else 0.0,
                    method,
                    self._beside(run, there, now, wishes, since_s.get(run.key, self.now_s)),
                    loads[place].now if not others else None,
                ),
            )

    def _age(self, run: PresentRun) -> float:
        return run.start_s if run.open else run.end_s or run.start_s

    def _beside(
        self,
        run: PresentRun,
        there: list[PresentRun],
        now: list[PresentRun],
        wishes: list[float],
        since_s: float,
    ) -> list[Beside]:
        """The jobs that were beside the run at some time since ``since_s``."""
        wish = {one.key: value for one, value in zip(now, wishes, strict=False)}
        return [
            Beside(one.job_id, one.start_s, one.end_s, wish.get(one.key, one.smact))
            for one in there
            if one is not run and (one.open or (one.end_s or 0.0) > since_s)
        ]

    def strangers(self, gpu: GpuNow | None, now: list[PresentRun]) -> list[JobThere]:
        """Jobs that the agent sees there and colocd does not know."""
        ours = {run.job_id for run in self.runs}
        return [one for one in gpu.jobs if one.job_id not in ours] if gpu and now else []

    def method(self, now: list[PresentRun]) -> str:
        """As in core/place/speeds: an MPS server has one user unless configured otherwise."""
        several = len({run.uid for run in now}) > 1
        return "streams" if self.turns or (several and not self.everybody) else "mps"


def lost_s(state: Pressed, since_s: float, now_s: float) -> float:
    """Seconds that a run lost beside others from ``since_s`` to ``now_s``."""
    if not state.beside:
        return 0.0
    since_s = max(since_s, min(one.start_s for one in state.beside))
    if now_s <= since_s:
        return 0.0
    span_s = now_s - since_s
    done_s = slowdown.alone_s(state.mine, since_s, now_s, state.beside, state.method)
    if span_s < SPAN_S:  # over a longer gap the present part says nothing
        done_s = max(done_s, state.least * span_s)
    return max(0.0, span_s - done_s)


def activities(pressed: Mapping[Key, Pressed]) -> dict[tuple[int, int], float]:
    """What each run's SM activity would be alone, by job and restart, where its part of a GPU that
    is not full tells it."""
    found = {}
    for (_, job_id, restart), state in pressed.items():
        if state.least > 0.0 and state.mine < slowdown.BUSY:  # not for want of knowledge
            found[job_id, restart] = state.mine
    return found
