# SPDX-License-Identifier: Apache-2.0
"""Placement policies, one a file, found by name; a new one changes no other file.

Each module has POLICY, an object as core/place/placing.Policy describes it. Most only order the
GPUs that admit a job (ByOrder); sharing conditions and queue discipline are the same for all.
"""

import pkgutil
from collections.abc import Mapping
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


def policy(name: str, known: Mapping[str, Policy] | None = None) -> Policy:
    """The policy ``name`` of ``known`` (default: all here); raises UsageFault with the names."""
    among = registry() if known is None else known
    if name not in among:
        raise UsageFault(f"unknown policy {name!r}: one of {', '.join(sorted(among))}")
    return among[name]


def fresh(policy: Policy) -> Policy:
    """The policy without what it remembers of another run, where it remembers anything."""
    anew = getattr(policy, "fresh", None)
    return policy if anew is None else anew()
