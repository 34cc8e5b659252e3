# SPDX-License-Identifier: Apache-2.0
"""The time that a training still takes, from how long earlier ones of the same model took."""

from collections.abc import Sequence
from statistics import median

FEW = 0.3  # either way, of one earlier run
TENTH = 0.1  # of the earlier runs that may lie on either side of the range


def left_after(lasted_s: Sequence[float], elapsed_s: float) -> tuple[float, float, float] | None:
    """Seconds left and their range for a run that has taken ``elapsed_s``; None where no earlier
    run took longer."""
    longer = sorted(one for one in lasted_s if one > elapsed_s)
    if not longer:
        return None
    left_s = median(longer) - elapsed_s
    if len(longer) == 1:
        return left_s, left_s * (1 - FEW), left_s * (1 + FEW)
    place = round(TENTH * (len(longer) - 1))
    return left_s, longer[place] - elapsed_s, longer[-1 - place] - elapsed_s
