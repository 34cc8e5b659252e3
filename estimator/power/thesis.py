# SPDX-License-Identifier: Apache-2.0
"""The thesis' own servers as settings: what its published rows were measured with.

Two states of CARMA's code. `thesis_way`: the one that the thesis' chapter 6 was run with (75e5b71).
It sleeps 30 s before every pass over the queue and 30 s more in every branch that shares, sees
telemetry of up to 90 s ago, tries the first job only, uses the first idle GPUs where there are
enough, and after an out-of-memory puts the job first in the queue for idle GPUs, where others may
join it. `carma_way`: the later published one (e044017): a pass each second, 30 samples blended into
a risk, a newcomer where SM activity or both occupancy and DRAM activity are low, no launch beside
one that has not settled. All that is theirs alone is here; policies and the engine do not know it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.core.place.interference import REFERENCE, Interference
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.outcome import Outcome
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.power import A100, Power
from slurm_coloc.sim.setting import Pace, Recovery, Setting
from slurm_coloc.sim.telemetry import Monitor
from slurm_coloc.sim.trace import TraceJob

#: seconds of one pass over idle GPUs, and over shared ones (facts of the thesis-era code)
IDLE_PASS_S, SHARED_PASS_S = 35.0, 65.0
#: SMACT that a newcomer needs occupancy or DRAM activity below, and these (facts of CARMA's code)
CARMA_SMACT, CARMA_SMOCC, CARMA_DRAMA = 0.80, 0.45, 0.40
CARMA_MARGIN_MIB, CARMA_FREE_MIB, CARMA_RESERVE_MIB = 2048, 5120, 512


@dataclass(frozen=True, slots=True)
class Way:
    """A published way of running a trace: a policy's name, a setting, and what it knows of a
    job's memory: none, oracle, or a column of the trace."""

    policy: str
    estimator: str
    setting: Setting


def thesis_way(
    order: str,
    estimator: str = "none",
    method: str = "mps",
    smact_at_most: float | None = None,
    free_mib: int | None = None,
    margin_mib: int = 0,
    interference: Interference = REFERENCE,
    power: Power = A100,
) -> Way:
    """A row of the thesis' tables. ``smact_at_most``: ratio; ``free_mib``: that telemetry must
    show; ``margin_mib``: beyond the estimate. Round robin heeds none of them."""
    exclusive, blind = order == "exclusive", order == "round-robin"
    conditions = Conditions(
        by_plan=False,
        margin_mib=None if blind or exclusive or estimator == "none" else margin_mib,
        # Without any condition it still sorts by what telemetry shows.
        free_mib=None if blind or exclusive else free_mib or 0,
        smact_at_most=None if blind or exclusive else smact_at_most,
        jobs=99,
        idle_first=True,
    )
    shared_s = IDLE_PASS_S if exclusive else SHARED_PASS_S
    setting = Setting(
        conditions=conditions,
        interference=interference,
        method=method,
        monitor=Monitor(window_s=90.0, refresh_s=90.0),
        pace=Pace(idle_s=IDLE_PASS_S, shared_s=shared_s, asleep=True),
        recovery=Recovery(delay_s=5.0, joinable=True, first=True),
        power=power,
        expect_runs=False,
    )
    return Way(order, estimator, setting)


def carma_way(
    order: str,
    estimator: str = "none",
    method: str = "mps",
    interference: Interference = REFERENCE,
    power: Power = A100,
) -> Way:
    """CARMA as it was published later."""
    conditions = Conditions(
        by_plan=False,
        margin_mib=None if estimator == "none" else CARMA_MARGIN_MIB,
        free_mib=CARMA_FREE_MIB if estimator == "none" else 0,
        smact_at_most=CARMA_SMACT,
        smocc_at_least=CARMA_SMOCC,
        drama_at_least=CARMA_DRAMA,
        jobs=99,
        idle_first=True,
    )
    setting = Setting(
        conditions=conditions,
        interference=interference,
        method=method,
        monitor=Monitor(30.0, 1.0, CARMA_RESERVE_MIB, "risk"),
        # It polls every second. Here at every event and four times a minute: a window of 30 s
        # cannot change much faster, and a second's step costs minutes.
        pace=Pace(tick_s=15.0, idle_s=1.0, shared_s=1.0),
        recovery=Recovery(delay_s=5.0, joinable=True, first=True),
        power=power,
        expect_runs=False,
        settle=True,
    )
    return Way(order, estimator, setting)


def requests_of(way: Way, jobs: Sequence[TraceJob]) -> Callable[[TraceJob], PlaceRequest]:
    """What that server knows of a job: MiB as they stand, no shards. A job that an estimator has
    no answer for starts on idle GPUs only, and others may join it there."""
    known = {name for job in jobs for name in job.estimates} | {"none", "oracle"}
    if way.estimator not in known:
        raise KeyError(way.estimator)

    def request(job: TraceJob) -> PlaceRequest:
        found: float | None = None
        if way.estimator == "oracle":
            found = job.memory_mib
        elif way.estimator != "none":
            found = job.estimates.get(way.estimator)
        need = None if found is None else math.ceil(found)
        return job.request(need, idle_only=need is None and way.estimator != "none")

    return request


def run_way(way: Way, jobs: Sequence[TraceJob], machine: Machine) -> Outcome:
    """Play a trace that way."""
    simulation = Simulation(jobs, machine, policy(way.policy), way.setting, requests_of(way, jobs))
    return simulation.run()
