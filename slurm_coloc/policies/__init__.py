# SPDX-License-Identifier: Apache-2.0
"""Policies: one a file, found by name; adding one edits no other file."""

import pkgutil
from functools import cache
from importlib import import_module
from types import MappingProxyType

from slurm_coloc.core.decide import Policy
from slurm_coloc.errors import UsageFault


@cache
def registry() -> MappingProxyType[str, Policy]:
    """Every policy of this package by its name: each module's POLICY."""
    found = [
        import_module(f"{__name__}.{item.name}").POLICY for item in pkgutil.iter_modules(__path__)
    ]
    return MappingProxyType({policy.name: policy for policy in found})


def policy(name: str) -> Policy:
    """The policy called ``name``; raises UsageFault naming those that exist."""
    try:
        return registry()[name]
    except KeyError:
        raise UsageFault(
            f"unknown policy {name!r}: one of {', '.join(sorted(registry()))}"
        ) from None
