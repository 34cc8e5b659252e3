# SPDX-License-Identifier: Apache-2.0
"""From an estimate to the memory that a job will not exceed (99 %).

Above the context: the estimate times a margin that depends on how much is known, plus 64 MiB. From
1,730 measured training runs of 356 timm models on an A100-40GB (fp32, SGD with momentum; batch 8 to
128), 28 model families (`python -m estimator.evaluate`):

- recording: 1.13 leaves 0.75 % of the runs above the bound.
- text: 1.13 for models whose modules are all known. 1.16 and, for the others, 1.5 leave 0.4 % of
  the runs above the bound. They were chosen on the same runs: with quantiles of four fifths of the
  families 1.6 to 1.8 % of the runs of the other families were above theirs; with recordings 1.0
  to 1.5 %.
- cut (torchinfo's default depth of 3): 1.57, and up to 11 where modules are not known.
"""

from enum import StrEnum


class Tier(StrEnum):
    """How much is known of a step."""

    RECORDED = "recorded"
    TEXT = "text"  # every row's module is understood
    DOUBTFUL = "doubtful"  # some module hides functions
    CUT = "cut"  # rows below a depth limit are missing


FLOOR_MIB = 64
MARGINS = {Tier.RECORDED: 1.13, Tier.TEXT: 1.16, Tier.DOUBTFUL: 1.5, Tier.CUT: 1.7}


def upper_mib(memory_mib: int, context_mib: int, tier: Tier) -> int:
    """The bound (MiB) for an estimate (MiB, with the context)."""
    return context_mib + int((memory_mib - context_mib) * MARGINS[tier]) + FLOOR_MIB
