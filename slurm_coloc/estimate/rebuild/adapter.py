# SPDX-License-Identifier: Apache-2.0
"""Adapters beside a matrix that is frozen (Hu et al. 2021, arXiv 2106.09685; peft's lora.Linear):
both read the same value, and what the adapter makes is scaled and added."""

from dataclasses import dataclass

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.leaves import leaf
from slurm_coloc.estimate.rebuild.scope import Scope
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.summary import Layer


@dataclass(frozen=True, slots=True)
class Adapter:
    """The matrix itself, and the adapter's rows in order: maybe a dropout, one matrix down, one
    up."""

    base: Layer
    beside: tuple[Layer, ...]


def adapter(node: Node) -> Adapter | None:
    """The rows of such a module; None for others."""
    if node.layer.role is not Role.LINEAR or len(node.children) < 3:
        return None
    base, *dicts = node.children
    if base.children or base.layer.role is not Role.LINEAR:
        return None
    if any(one.layer.kind not in ("ModuleDict", "ParameterDict") for one in dicts):
        return None
    beside = [row.layer for one in dicts for row in one.children[:1] if not row.children]
    if sum(row.role is Role.LINEAR for row in beside) != 2:
        return None
    return Adapter(base.layer, tuple(row for row in beside if row.role is not Role.ALIAS))


def base_of(node: Node) -> Layer:
    """The row that makes a node's output: of an adapted matrix the matrix."""
    found = adapter(node)
    return found.base if found else node.layer


def run_adapter(scope: Scope, rows: Adapter, x: Value) -> Value:
    """Such a module on ``x``."""
    made = leaf(scope, rows.base, x)
    own = scope.same(x, x.shape)
    for row in rows.beside:
        own = scope.after(own, leaf(scope, row, own))
    scaled = scope.after(own, scope.run([own], own.shape, own.size))
    total = scope.run([made, scaled], made.shape, made.size, through=True)
    scope.drop(made, scaled)
    return total
