# SPDX-License-Identifier: Apache-2.0
"""The policies of a simulation: those of slurm_coloc.policies, lookahead, which plans ahead, and
what ``--policy best`` means: a policy and the setting that we recommend with it.

colocd never loads the search that lookahead needs: it places by the first alone.
"""

from dataclasses import replace
from functools import cache
from types import MappingProxyType

from slurm_coloc import policies as greedy
from slurm_coloc.core.place.placing import Policy, Start, View
from slurm_coloc.planning.schedules.native import NOT_BUILT, built
from slurm_coloc.sim.search.lookahead import POLICY as LOOKAHEAD
from slurm_coloc.sim.search.lookahead import Lookahead
from slurm_coloc.sim.setting import Setting

BEST = "best"
#: waiting jobs that best considers
DEPTH = 200
#: GPUs up to which it plans ahead; beyond, run times need not be guessed
PLANNED = 32
#: part of the trainings whose log is assumed to show how far they are
LOGS = 0.75


@cache
def registry() -> MappingProxyType[str, Policy]:
    """Every policy that a simulation knows, by its name."""
    return MappingProxyType({**greedy.registry(), LOOKAHEAD.name: LOOKAHEAD})


def policy(name: str) -> Policy:
    """The policy called ``name``; raises UsageFault naming those that exist."""
    return greedy.policy(name, registry())


class Best:
    """Planning ahead, which decides greedily where a cluster is too large for it."""

    name = BEST

    def __init__(self) -> None:
        self._policy = Lookahead()

    def fresh(self) -> "Best":
        """One that remembers nothing of another run."""
        return Best()

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        return self._policy.next(view)


def best_policy() -> Policy:
    """The policy of ``--policy best``."""
    return Best()


def best_setting(setting: Setting, gpus: int) -> Setting:
    """The setting that was asked for, with the depth and the knowledge that planning needs, and
    with what ended runs of a training were seen to take."""
    plans = gpus <= PLANNED
    logs = LOGS if setting.logs is None else setting.logs
    return replace(
        setting,
        depth=max(setting.depth, DEPTH),
        guess_runs=plans,
        learn_peaks=True,
        logs=logs if plans else 0.0,
    )


def best_assumes(setting: Setting) -> list[str]:
    """What that setting takes for granted besides the trace, in lines for people; and that it does
    not plan where it cannot."""
    if not built():
        return [f"best places greedily here: its planner {NOT_BUILT}"]
    if not setting.guess_runs:
        return [f"best plans ahead on {PLANNED} GPUs at most: here it places as interference does"]
    if not setting.logs:
        return []
    return [
        f"best knows how long a running job takes from its log, for {setting.logs:.0%} of the "
        "trainings and once a twentieth is done (--logs)"
    ]
