# SPDX-License-Identifier: Apache-2.0
"""The lines that a training writes into its log about its checkpoints: one when one is saved, and
one when it leaves to go on later. slurm_coloc.checkpoint prints them; any program may."""

import re
from typing import NamedTuple

# A progress bar ends its line by a carriage return.
_LINE = rb"(?:^|[\r\n])coloc: (checkpoint saved|to be continued)(?=[\r\n,;. ]|$)"


class Announced(NamedTuple):
    """``saved``: there is a checkpoint; ``goes_on``: the run ended to be continued."""

    saved: bool = False
    goes_on: bool = False


def announced(tail: bytes) -> Announced:
    found = {match[1] for match in re.finditer(_LINE, tail)}
    return Announced(b"checkpoint saved" in found, b"to be continued" in found)
