# SPDX-License-Identifier: Apache-2.0
"""Policies: where waiting jobs are put. One a file, found by name; adding one edits no other file.

Each module has POLICY, an object as core/place/placing.Policy describes it. Most are an order of
the GPUs that admit a job (ByOrder); the conditions of sharing and the discipline of the queue are
given to them and are the same for all.
"""

import pkgutil
from functools import cache
from importlib import import_module
from types import MappingProxyType

from slurm_coloc.core.place.placing import Policy
from slurm_coloc.errors import UsageFault


@cache
def registry() -> MappingProxyType[str, Policy]:
    """Every policy of this package by its name: each module's POLICY."""
    modules = [import_module(f"{__name__}.{item.name}") for item in pkgutil.iter_modules(__path__)]
    found = [module.POLICY for module in modules if hasattr(module, "POLICY")]
    return MappingProxyType({policy.name: policy for policy in found})


def policy(name: str) -> Policy:
    """The policy called ``name``; raises UsageFault naming those that exist."""
    try:
        return registry()[name]
    except KeyError:
        raise UsageFault(
            f"unknown policy {name!r}: one of {', '.join(sorted(registry()))}"
        ) from None


def fresh(policy: Policy) -> Policy:
    """The policy without what it remembers of another run, where it remembers anything."""
    anew = getattr(policy, "fresh", None)
    return policy if anew is None else anew()
