# SPDX-License-Identifier: Apache-2.0
"""The policies of a simulation: those of slurm_coloc.policies, and lookahead, which plans ahead.

colocd never loads the search that lookahead needs: it places by the first alone.
"""

from functools import cache
from types import MappingProxyType

from slurm_coloc.core.place.placing import Policy
from slurm_coloc.errors import UsageFault
from slurm_coloc.policies import registry as greedy
from slurm_coloc.sim.search.lookahead import POLICY as LOOKAHEAD


@cache
def registry() -> MappingProxyType[str, Policy]:
    """Every policy that a simulation knows, by its name."""
    return MappingProxyType({**greedy(), LOOKAHEAD.name: LOOKAHEAD})


def policy(name: str) -> Policy:
    """The policy called ``name``; raises UsageFault naming those that exist."""
    try:
        return registry()[name]
    except KeyError:
        names = ", ".join(sorted(registry()))
        raise UsageFault(f"unknown policy {name!r}: one of {names}") from None
