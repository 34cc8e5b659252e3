# SPDX-License-Identifier: Apache-2.0
"""Everything that a simulation assumes besides the trace, the machine and the policy."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.core.place.interference import REFERENCE, Interference
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.sim.power import A100, Power
from slurm_coloc.sim.telemetry import Monitor


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the scheduler decides. ``tick_s``: at least so often while jobs wait and telemetry
    decides. ``idle_s`` and ``shared_s``: seconds that it needs for one start on idle GPUs and on
    shared ones (35 and 65 in the thesis' code; 0: at once). ``asleep``: it sleeps so long before
    every pass over the queue, after one that started nothing too, as the thesis' code does; else
    it decides at once when something changes."""

    tick_s: float = 30.0
    idle_s: float = 0.0
    shared_s: float = 0.0
    asleep: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """After an out-of-memory. ``delay_s``: until it may start again. ``more_mib``: steps of memory
    that are added before it gets a whole GPU. ``joinable``: others may join it there (the thesis),
    else it stays alone. ``first``: it goes before all that wait. ``forgiven``: so often it comes
    back unchanged if it had kept to its reservation, so that a neighbour was to blame."""

    delay_s: float = 5.0
    more_mib: tuple[int, ...] = ()
    joinable: bool = False
    first: bool = True
    forgiven: int = 0

    def next_request(
        self,
        last: PlaceRequest,
        memory_mib: int,
        times: int,
        holds: Callable[[PlaceRequest], bool],
    ) -> PlaceRequest:
        """The request of a job after its n-th out-of-memory. ``memory_mib``: its true peak;
        ``holds``: whether shared GPUs could hold a request.

        If it kept to its reservation a neighbour did not: that is forgiven ``forgiven`` times. Then
        it gets more memory step by step, then idle GPUs that others may join where the rule says
        so, then whole GPUs.
        """
        need = last.need_mib
        if need is not None:
            if memory_mib <= need and times <= self.forgiven:
                return last
            if times <= len(self.more_mib):
                more = replace(last, need_mib=need + self.more_mib[times - 1])
                if holds(more):
                    return more
        if self.joinable and not last.idle_only:
            return replace(last, idle_only=True)
        return replace(last, share=False)


@dataclass(frozen=True, slots=True)
class Priority:
    """The order of the queue by age and fair share (sim/priority).

    Weights, and Slurm's defaults for the times: PriorityMaxAge and PriorityDecayHalfLife of seven
    days, PriorityCalcPeriod of five minutes (slurm.conf(5)).
    """

    age_weight: float = 1000.0
    share_weight: float = 1000.0
    age_s: float = 7 * 86400.0
    half_life_s: float = 7 * 86400.0
    period_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One way of running a cluster.

    ``method``: how jobs share a GPU. mps and streams: MIG instances too. mig: one job an instance,
    and one a GPU that is not cut; on a machine without any layout a GPU is cut in two halves while
    it is idle, or in one for a job that needs more than a half. ``depth``: waiting jobs that may
    be considered; 1 is strict order. ``priority``: the queue's order by age and fair share; None:
    by arrival. ``ramp_s``: seconds after its launch in which a job's memory appears. ``launch_s``:
    seconds before that in which it has its GPUs and does nothing there: Prolog, start, imports.
    ``fence``: a job that takes more than its reservation runs out itself. ``settle``: no job joins
    a GPU while a job's memory has not appeared there. ``multi_user_mps``: jobs of several users may
    share one MPS server; without it such a GPU works by streams. ``node_cpus``, ``node_host_mib``:
    what each node has for its jobs; 0 = never short. ``stretch``: a job's time limit grows with the
    slowdown that the scheduler expects of its GPUs, up to ``max_limit_s``, the partition's MaxTime
    (None: no bound); no job joins one whose limit cannot grow so far. ``believed``: the model
    of interference that the limits are stretched by; None: the true one. ``expect_runs``: run times
    are expected from ended jobs of the same name; else only time limits are known. ``guess_runs``:
    where none ended, they are guessed from jobs like it and its limit, again whenever one ends.
    ``run_error``: runs of each training ended before the trace began, and what is expected from
    them is wrong by so much (median, ratio); None: nothing is known before. ``logs``: part of the
    trainings whose log shows, once they run, how long they take (sim/forecast); None: what the
    policy was made for, nothing but with best. ``learn_peaks``: the memory that ended runs of the
    same name took counts more than an estimate. ``pool``: so many GPUs are shared, the first ones;
    None: all. ``most_gpus``: jobs of more get whole GPUs. ``record``: keep what pictures
    need. ``size_budget``: pool.compute_budget where shares are sized by SM activity too
    (pool.size_by_smact); None: by memory alone.
    """

    conditions: Conditions = Conditions()
    interference: Interference = REFERENCE
    method: str = "mps"
    depth: int = 1
    priority: Priority | None = None
    monitor: Monitor = Monitor()
    pace: Pace = Pace()
    recovery: Recovery = Recovery()
    power: Power = A100
    ramp_s: float = 45.0
    launch_s: float = 0.0
    fence: bool = False
    multi_user_mps: bool = True
    node_cpus: int = 0
    node_host_mib: int = 0
    stretch: bool = True
    max_limit_s: float | None = None
    believed: Interference | None = None
    expect_runs: bool = True
    guess_runs: bool = False
    run_error: float | None = None
    logs: float | None = None
    learn_peaks: bool = False
    pool: int | None = None
    most_gpus: int | None = None
    settle: bool = False
    record: bool = False
    size_budget: float | None = None

    def slowdown_limit(self, asked: float | None, limit_s: float | None) -> float | None:
        """The highest slowdown of a job: what was asked for, and by which its time limit can be
        stretched up to the partition's MaxTime. None: any."""
        if not self.stretch or self.max_limit_s is None or limit_s is None:
            return asked
        room = max(1.0, self.max_limit_s / max(limit_s, 1.0))
        return room if asked is None else min(asked, room)
