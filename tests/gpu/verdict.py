# SPDX-License-Identifier: Apache-2.0
"""What a check found: held, false, only measured, or not to be tested here, with the reason."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """``MEASURED``: a figure that nothing was asserted of."""

    OK = "ok"
    FALSE = "FALSE"
    MEASURED = "measured"
    UNTESTED = "untested"


@dataclass(frozen=True, slots=True)
class Found:
    """One line of the table; ``figures`` go to the JSON file too."""

    name: str
    verdict: Verdict
    text: str
    figures: dict[str, Any] = field(default_factory=dict)


def judged(name: str, held: bool, text: str, **figures: Any) -> Found:
    """A check that holds or is false."""
    return Found(name, Verdict.OK if held else Verdict.FALSE, text, figures)


def measured(name: str, text: str, **figures: Any) -> Found:
    """A figure."""
    return Found(name, Verdict.MEASURED, text, figures)


def untested(name: str, why: str) -> Found:
    """What this place cannot answer."""
    return Found(name, Verdict.UNTESTED, why)
