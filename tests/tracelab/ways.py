# SPDX-License-Identifier: Apache-2.0
"""The policies that are run: how the lab is set for each, and the simulator's words for it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from slurm_coloc.core.place.placing import Conditions

#: the thesis' gate, colocd's default: a GPU above it gets no other job
GATE = 0.8
#: minutes; the same for all and beyond any run, so that Slurm's backfill, which goes by limits,
#: starts no job before one that was submitted earlier
LIMIT_MIN = 600


@dataclass(frozen=True, slots=True)
class Way:
    """``shares``: jobs are submitted with --coloc. ``release``: of Slurm, that it needs.
    ``policy``, ``conditions``: the simulator's. ``telemetry``: colocd decides on what the agents
    measure, and the simulator plays its looks at the queue (steering.py). ``plan``: placement.plan,
    for which the running trainings' logs are read."""

    name: str
    about: str
    policy: str
    shares: bool = True
    release: tuple[int, int] = (0, 0)
    wish: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    conditions: Conditions = Conditions()
    telemetry: bool = False
    plan: str = "off"


WAYS = {
    way.name: way
    for way in (
        Way("exclusive", "whole GPUs, without --coloc", "exclusive", shares=False),
        Way("native", "Slurm's first fit", "first-fit"),
        Way(
            "least-loaded",
            "Slurm's LL_SHARED_GRES",
            "magm",
            release=(23, 2),
            wish={"least_loaded": True},
        ),
        Way(
            "steered",
            f"colocd pins by magm, gate at {GATE:.0%} SM activity",
            "magm",
            release=(24, 11),
            wish={"steered": True},
            conditions=Conditions(margin_mib=0, smact_at_most=GATE),
            telemetry=True,
        ),
        Way(
            "planned",
            "colocd plans the queue: which GPU, and which of the user's jobs first",
            "auto",
            release=(24, 11),
            wish={"steered": True},
            conditions=Conditions(margin_mib=0, smact_at_most=GATE),
            telemetry=True,
            plan="order",
        ),
    )
}
