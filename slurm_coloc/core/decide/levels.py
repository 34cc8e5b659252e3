# SPDX-License-Identifier: Apache-2.0
"""Margins as functions of the probability with which they hold."""

import math
from collections.abc import Sequence
from itertools import pairwise

#: the probabilities at which a curve has points
LEVELS = (0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
DEFAULT_LEVEL = 0.99


def at_level(curve: Sequence[float], level: float) -> float:
    """The curve (a rising value for each of LEVELS) at ``level``: linear in the logarithm of 1 -
    level between its points, constant outside of them."""
    if level <= LEVELS[0]:
        return curve[0]
    for (low, high), (first, last) in zip(pairwise(LEVELS), pairwise(curve), strict=True):
        if level <= high:
            part = math.log((1 - low) / (1 - level)) / math.log((1 - low) / (1 - high))
            return first + (last - first) * part
    return curve[-1]
