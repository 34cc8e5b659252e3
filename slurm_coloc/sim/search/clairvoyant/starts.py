# SPDX-License-Identifier: Apache-2.0
"""Plans to begin a search with: what the policies of the registry do to the same trace."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from slurm_coloc.core.place.gpu_slot import PlaceRequest
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.planning.schedules.problem import Spot
from slurm_coloc.policies import fresh
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.outcome import Outcome, Piece
from slurm_coloc.sim.policies import registry
from slurm_coloc.sim.search.clairvoyant.model import Model
from slurm_coloc.sim.setting import Setting

#: how many waiting jobs a policy may consider: strict order, and backfill
DEPTHS = (1, 50)


def truths(model: Model) -> dict[int, PlaceRequest]:
    """What each job asks for when everything is known, by its id."""
    return {
        job.id: job.request(None if alone else job.memory_mib, not alone)
        for job, alone in zip(model.jobs, model.alone, strict=True)
    }


def spots_of(model: Model, outcome: Outcome) -> list[Spot]:
    """The plan of a schedule that was played: same slots, same order of starts."""
    number = {job.id: index for index, job in enumerate(model.jobs)}
    last: dict[int, list[Piece]] = {}
    for piece in outcome.pieces:
        others = last.setdefault(number[piece.job_id], [])
        if others and others[0].start_s < piece.start_s:
            others.clear()
        others.append(piece)
    order = sorted(last, key=lambda job: (last[job][0].start_s, job))
    spots = [Spot((), 0.0, 0)] * len(model.jobs)
    for place, job in enumerate(order):
        slots = tuple(sorted(piece.slot for piece in last[job]))
        spots[job] = Spot(slots, float(place), model.beside(job))
    return spots


def starts(
    model: Model, machine: Machine, setting: Setting, policies: Iterable[Policy] | None = None
) -> list[tuple[float, list[Spot]]]:
    """Makespan (s) and plan of each policy at each depth, the best ones first; each plan once."""
    found: dict[tuple[Spot, ...], float] = {}
    requests = truths(model)
    for policy in sorted(registry().values(), key=_name) if policies is None else policies:
        for depth in DEPTHS:
            outcome = Simulation(
                model.jobs,
                machine,
                fresh(policy),
                replace(setting, depth=depth, record=True),
                lambda job: requests[job.id],
            ).run()
            found.setdefault(tuple(spots_of(model, outcome)), outcome.makespan_s)
    return [(makespan, list(spots)) for spots, makespan in sorted(found.items(), key=_second)]


def _name(policy: Policy) -> str:
    return policy.name


def _second(pair: tuple[Sequence[Spot], float]) -> float:
    return pair[1]
