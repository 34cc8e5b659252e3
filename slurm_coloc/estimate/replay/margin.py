# SPDX-License-Identifier: Apache-2.0
"""From an estimate to the memory that a job will not exceed (99 %, or another level).

Above the context: the estimate times a margin that depends on how much is known, plus 64 MiB. From
1,730 measured training runs of 356 timm models on an A100-40GB (fp32, SGD with momentum; batch 8 to
128), 28 model families (`python -m estimator.evaluate`):

- recording (of the models as timm 1.0.9 builds them, which the runs fit): 1.09 leaves 0.79 % of
  1,762 runs above the bound, 735 MiB too much in the mean; of other families 0.8 to 1.1 %.
- text: 1.10 is the 99 % quantile of models whose modules are all known. The 99.5 % quantile of four
  fifths of the families is exceeded by 0.4 to 0.5 % of the runs of the other families, at 1.0 GiB
  too much in the mean (the 99 % one by 1.0 to 1.3 %, at 0.9 GiB). 1.155 and, for the others, 1.4
  are for models unlike any here: 99 % quantiles of 127 timm models of other files, text against
  recording, times what recordings needed on the measured runs. With these 0.2 % of the measured
  runs are above the bound.
- cut (torchinfo's default depth of 3, rows that could not be opened): 1.60 is the 99 % quantile of
  194 models; of those whose rows could be opened 1.10, as of whole texts.
- published (as cut, of classes in rebuild/closed.py): 1.22 is the 99 % quantile of 574 runs.
- flat (torchsummary): 1.26 is the 99 % quantile of 466 runs of 95 models, five of each family; 2.17
  that of Transformers whose attention such a table hides, before its stored scores counted.

Other levels than 99 % widen or shrink what a margin adds by SHAPE: the tiers' quantiles on the same
runs over their value at 99 % (`python -m estimator.evaluate.levels`). Above 99.5 % a few models
decide.
"""

from enum import StrEnum

from slurm_coloc.core.decide.levels import DEFAULT_LEVEL, at_level


class Tier(StrEnum):
    """How much is known of a step."""

    RECORDED = "recorded"
    TEXT = "text"  # every row's module is understood
    DOUBTFUL = "doubtful"  # some module hides functions
    CUT = "cut"  # rows below a depth limit are missing
    PUBLISHED = "published"  # the same, of a class whose kept share is known
    FLAT = "flat"  # a table of blocks without the tree: what they sum and gate is not seen
    FLAT_TOKENS = "flat-tokens"  # and what attention does neither


FLOOR_MIB = 64
#: margins at 99 %
MARGINS = {
    Tier.RECORDED: 1.09,
    Tier.TEXT: 1.155,
    Tier.DOUBTFUL: 1.4,
    Tier.CUT: 1.62,
    Tier.PUBLISHED: 1.28,
    Tier.FLAT: 1.28,
    Tier.FLAT_TOKENS: 2.2,
}
#: what a margin adds at core.levels.LEVELS, over what it adds at 99 %; of doubtful texts from the
#: models of other files
SHAPE = {
    Tier.RECORDED: (0.0, 0.34, 0.52, 0.74, 1.0, 1.18, 2.52),
    Tier.TEXT: (0.0, 0.32, 0.53, 0.83, 1.0, 1.12, 1.6),
    Tier.DOUBTFUL: (0.0, 0.33, 0.71, 0.9, 1.0, 1.06, 1.5),
    Tier.CUT: (0.0, 0.47, 0.59, 0.85, 1.0, 1.6, 1.7),
    Tier.PUBLISHED: (0.0, 0.53, 0.68, 0.83, 1.0, 1.12, 1.4),
    Tier.FLAT: (0.0, 0.51, 0.59, 0.83, 1.0, 1.11, 1.5),
    Tier.FLAT_TOKENS: (0.15, 0.55, 0.78, 0.95, 1.0, 1.1, 1.3),
}


def margin(tier: Tier, level: float) -> float:
    """What the estimate, above the context, is multiplied with to hold with ``level``."""
    return 1.0 + (MARGINS[tier] - 1.0) * at_level(SHAPE[tier], level)


def upper_mib(memory_mib: int, context_mib: int, tier: Tier, level: float = DEFAULT_LEVEL) -> int:
    """The bound (MiB) for an estimate (MiB, with the context)."""
    return context_mib + int((memory_mib - context_mib) * margin(tier, level)) + FLOOR_MIB
