# SPDX-License-Identifier: Apache-2.0
"""The sweeps that settle the defaults (docs/adr): one a knob."""

from dataclasses import replace

from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.sim.setting import Recovery
from slurm_coloc.sim.telemetry import Monitor
from tests.sweeps.mixes import MIXES, Mix
from tests.sweeps.sweep import NATIVE, Sweep, Way

PLAN = NATIVE.conditions


def _with(**values: object) -> Conditions:
    return replace(PLAN, **values)  # type: ignore[arg-type]


BUDGET = Sweep(
    "budget",
    "pool.compute_budget",
    [
        Way(
            f"{policy} {'none' if value is None else value}",
            replace(NATIVE, conditions=_with(budget=value)),
            policy,
        )
        for policy in ("first-fit", "magm")
        for value in (0.8, 1.0, 1.2, 1.4, 1.7, 2.0, 2.5, 3.0, None)
    ],
)

SIZE = Sweep(
    "size",
    "pool.size_by_smact: shares by memory, or by SM activity too, beside Slurm's two ways",
    [
        Way(
            f"{policy}, {f'by activity, {budget}' if budget else 'by memory'}",
            replace(NATIVE, size_budget=budget),
            policy,
        )
        for policy in ("first-fit", "magm")
        for budget in (None, 1.1, 1.4, 1.7, 2.0)
    ],
)

MARGIN = Sweep(
    "margin",
    "estimate margin: chance that a job stays within its share",
    [
        Way(
            f"error {error} at {level}{' fenced' if fence else ''}",
            replace(NATIVE, fence=fence),
            estimator=f"error:{error}:{level}",
        )
        for error in (0.03, 0.10)
        for fence in (False, True)
        for level in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)
    ],
)

MONITOR = Monitor(window_s=90.0, refresh_s=15.0)
GATE = Sweep(
    "gate",
    "steered: present SM activity before a job is added",
    [
        Way(
            f"magm, gate {gate or 'none'}{', budget 2.0' if budget else ''}",
            replace(NATIVE, conditions=_with(smact_at_most=gate, budget=budget), monitor=MONITOR),
            "magm",
        )
        for budget in (None, 2.0)
        for gate in (0.75, 0.80, 0.85, 0.90, 0.95, None)
    ],
)


def _users(mix: Mix, way: Way) -> Mix:
    return replace(mix, users=int(way.label.split()[0]))


SHARING = Sweep(
    "sharing",
    "pool.share_with",
    [
        Way(
            f"{users} users, {rule}{'' if together else ', streams between users'}",
            replace(NATIVE, conditions=_with(share_with=rule), multi_user_mps=together),
        )
        for users in (1, 5, 50)
        for rule, together in (
            ("user", True),
            ("account", True),
            ("anyone", True),
            ("anyone", False),
        )
    ],
    adapt=_users,
)


def _beside_plain(mix: Mix, way: Way) -> Mix:
    return replace(mix, plain=0.3, gpus=8, jobs=160)


POOL = Sweep(
    "pool",
    "how many of 8 GPUs are shared, beside whole-GPU and wide jobs",
    [Way(f"{pool} of 8", replace(NATIVE, pool=pool)) for pool in (0, 2, 4, 6, 8)],
    mixes=[mix for mix in MIXES if mix.name in ("mixed", "wide", "steady", "busy")],
    adapt=_beside_plain,
)

RECOVERY = Sweep(
    "recovery",
    "recovery.steps: steps of 5 GiB before a whole GPU, under a fence",
    [
        Way(
            f"error {error} at {level}, {steps} step{'' if steps == 1 else 's'}",
            replace(NATIVE, fence=True, recovery=Recovery(more_mib=(5120,) * steps)),
            estimator=f"error:{error}:{level}",
        )
        for error, level in ((0.03, 0.9), (0.1, 0.9), (0.3, 0.9))
        for steps in (0, 1, 2, 3)
    ],
)

SWEEPS = (BUDGET, SIZE, MARGIN, GATE, SHARING, POOL, RECOVERY)
