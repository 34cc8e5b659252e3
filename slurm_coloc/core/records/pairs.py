# SPDX-License-Identifier: Apache-2.0
"""How fast a user's trainings were beside each other, as their logs showed."""

import hashlib
from dataclasses import dataclass


def training_of(fingerprint: str | None, options: str | None) -> str:
    """What tells a model with its options from others; "" where it is not known."""
    if not fingerprint:
        return ""
    return hashlib.sha256(f"{fingerprint}\n{options or ''}".encode()).hexdigest()[:16]


@dataclass(slots=True, kw_only=True)
class PairSpeed:
    """Speed of user ``uid``'s ``training`` beside ``beside``: the mean logarithm of its ratio to
    that alone, over ``runs``. ``card``: the GPU's name; ``method``: mps or streams. ``at_s``: of
    the last one."""

    uid: int
    training: str
    beside: str
    card: str
    method: str
    runs: float
    log_speed: float
    at_s: float
