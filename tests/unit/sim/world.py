# SPDX-License-Identifier: Apache-2.0
"""Small worlds for tests of the simulator: a few jobs, told to a policy as they truly are."""

from collections.abc import Sequence
from typing import Any

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.outcome import Outcome, Record
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob

#: so little activity that nobody slows anybody down
CALM = 0.001


def job(
    number: int,
    submit_s: float = 0.0,
    run_s: float = 1000.0,
    memory_mib: int = 8000,
    smact: float = CALM,
    gpus: int = 1,
    **more: Any,
) -> TraceJob:
    """A job of the trace; its name is its number unless it is given."""
    more.setdefault("name", f"j{number}")
    return TraceJob(
        id=number,
        submit_s=submit_s,
        gpus=gpus,
        run_s=run_s,
        memory_mib=memory_mib,
        activity=Activity(smact),
        **more,
    )


def truth(one: TraceJob) -> PlaceRequest:
    """An ask that tells the truth."""
    return PlaceRequest(
        one.id,
        one.gpus,
        one.memory_mib if one.coloc else None,
        one.activity,
        one.submit_s,
        user=one.user,
        account=one.account,
        share=one.coloc,
    )


def blind(one: TraceJob) -> PlaceRequest:
    """An ask without an estimate."""
    return PlaceRequest(one.id, one.gpus, None, one.activity, one.submit_s, user=one.user)


def outcome(
    jobs: Sequence[TraceJob],
    setting: Setting | None = None,
    name: str = "first-fit",
    gpus: str = "1xa100-40gb",
    told: Any = truth,
) -> Outcome:
    """What comes of a trace."""
    machine = parse_machine(gpus)
    return Simulation(jobs, machine, policy(name), setting or Setting(), told).run()


def play(jobs: Sequence[TraceJob], *args: Any, **named: Any) -> dict[int, Record]:
    """The records of a trace by job."""
    return {record.job.id: record for record in outcome(jobs, *args, **named).records}
