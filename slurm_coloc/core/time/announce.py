# SPDX-License-Identifier: Apache-2.0
"""What a training says of its checkpoints in its log: a line when one is saved, and one when it
leaves to go on later. The lines are those of slurm_coloc.checkpoint; any program may print them."""

import re
from typing import NamedTuple

# A progress bar ends its line by a carriage return.
_LINE = re.compile(rb"(?:^|[\r\n])coloc: (checkpoint saved|to be continued)(?=[\r\n,;. ]|$)")


class Announced(NamedTuple):
    """``saved``: there is a checkpoint; ``goes_on``: the run ended to be continued."""

    saved: bool = False
    goes_on: bool = False


def announced(tail: bytes) -> Announced:
    """What the end of a log tells."""
    found = {match[1] for match in _LINE.finditer(tail)}
    return Announced(b"checkpoint saved" in found, b"to be continued" in found)
