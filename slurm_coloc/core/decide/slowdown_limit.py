# SPDX-License-Identifier: Apache-2.0
"""--coloc-max-slowdown at submission: whether a share can keep it, and what its user is told.

Steered, a GPU is left out where the job or one of its neighbours would be slowed down beyond its
bound, so a share keeps any bound that bears a neighbour at all. Native, Slurm chooses: a job that
would be beyond its bound beside one other like itself gets a whole GPU.
"""

from dataclasses import replace

from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.slowdown import smallest

#: a bound below this (a ratio) bears nobody
NOBODY = 1.005


def bounded(
    decision: Decision, bound: float | None, smact: float | None, *, steered: bool
) -> Decision:
    """The decision under a bound on the slowdown (None: none). ``smact``: SM activity that is
    expected alone. A MIG device is nobody else's."""
    if bound is None or decision.action is not Action.COLLOCATE or decision.slice_mib:
        return decision
    least = NOBODY if steered else max(NOBODY, smallest(smact))
    if bound < least:
        why = "it bears no neighbour" if bound < NOBODY else (
            f"beside one job like it {least:.2f} is to be expected, and Slurm chooses GPUs here"
        )  # fmt: skip
        return Decision(Action.EXCLUSIVE, Reason.MAX_SLOWDOWN, detail=f"{bound:g}: {why}")
    return replace(decision, max_slowdown=bound)


def told(bound: float, *, steered: bool, node_gate: bool) -> str:
    """One line for the user of a share with a bound."""
    if steered:
        return (
            f"bears at most {bound:g} times its time alone: its GPU is chosen, and closed, by that"
        )
    if node_gate:
        return (
            f"--coloc-max-slowdown={bound:g} is watched: Slurm chooses the GPU, and leaves out"
            " nodes whose GPUs are all busy or closed"
        )
    return f"--coloc-max-slowdown={bound:g} is watched, not kept: Slurm chooses the GPU here"
