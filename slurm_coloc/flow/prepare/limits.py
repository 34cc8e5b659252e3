# SPDX-License-Identifier: Apache-2.0
"""What one text may take, and what the processes on both sides of the border say to each other."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Limits:
    """For one text. ``cpu_s``: processor time. ``wall_s``: by the clock, for a machine that is
    busy and a child that was stopped. ``memory_mib``: on top of what the warm process has."""

    cpu_s: float
    wall_s: float
    memory_mib: int


class Ended(StrEnum):
    """Why a text has no answer."""

    CPU = "cpu"
    WALL = "wall"
    MEMORY = "memory"
    CRASH = "crash"
    AWAY = "away"  # nothing that the text did


READY = b"ready"  # the warm process' first message; what follows it is a warning
MAX_SETUP = 1 << 17  # bytes of the setup: limits and the site's stacks
MAX_REQUEST = 1 << 17  # bytes of a packed text with its options
MAX_ANSWER = 1 << 20  # bytes: MAX_VARIANTS of core/decide/prepared take less
