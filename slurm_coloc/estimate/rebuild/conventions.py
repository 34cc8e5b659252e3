# SPDX-License-Identifier: Apache-2.0
"""What a model does that its rows do not say, by how such models are written."""

import re
from math import prod

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.summary import Summary

_CAUSAL = re.compile(r"CausalLM|LMHeadModel|DoubleHeads")


def lifts_loss(summary: Summary) -> bool:
    """Whether the model's own loss is computed in 32 bits whatever its weights have: causal
    language models of transformers (loss/loss_utils.py: ForCausalLMLoss)."""
    return any(_CAUSAL.search(row.kind) for row in summary.layers[:1])


def drops(summary: Summary) -> bool:
    """Whether Dropout rows drop anything. Language models train with dropout; vision models list
    rows with a probability of 0. Tables do not show it; print(model) does, for each row."""
    embeds = Role.EMBEDDING in summary.rows.roles
    if embeds or summary.family in ("mlp", "recurrent") or summary.format == "reprtree":
        return True
    return summary.family == "cnn" and _drops_maps(summary)


def of_sequences(summary: Summary) -> bool:
    """Whether its modules stand in sequences alone, below a class of its own: no published one."""
    holders = False
    for row in summary.layers:
        if not row.leaf and row.depth > 0:
            if row.kind not in ("Sequential", "ModuleList"):
                return False
            holders = True
    return holders


def _drops_maps(summary: Summary) -> bool:
    """Whether a sequence of a convolutional net has a Dropout of maps: who puts it there means it.
    Published blocks (Mlp) list it with a probability of 0, and before a head it is a vector."""
    if Role.DROPOUT not in summary.rows.roles:
        return False
    parents: list[str] = []
    for row in summary.layers:
        del parents[row.depth :]
        meant = row.role is Role.DROPOUT and (not parents or parents[-1] == "Sequential")
        if meant and any(len(out) == 4 and prod(out[2:]) > 1 for out in row.outputs):
            return True
        parents.append(row.kind)
    return False
