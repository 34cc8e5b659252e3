# SPDX-License-Identifier: Apache-2.0
"""The course of a run in at most 120 points of equal length; full ones are merged in pairs."""

from collections.abc import Sequence
from typing import Any

POINTS = 120
STEP_S = 5


class Series:
    """Memory: the maximum of each step; SM activity: its mean; None: no sample."""

    def __init__(self, start_s: float, step_s: int = STEP_S) -> None:
        self.start_s = start_s
        self.step_s = step_s
        self._memory: list[int | None] = []
        self._sums: list[float] = []
        self._counts: list[int] = []

    def add(self, at_s: float, mib: int, smact: float | None) -> None:
        """Add a sample; one from before the start is left out."""
        number = int((at_s - self.start_s) // self.step_s)
        if number < 0:
            return
        while number >= POINTS:
            self._merge()
            number = int((at_s - self.start_s) // self.step_s)
        missing = number + 1 - len(self._memory)
        if missing > 0:
            self._memory += [None] * missing
            self._sums += [0.0] * missing
            self._counts += [0] * missing
        self._memory[number] = max(mib, self._memory[number] or 0)
        if smact is not None:
            self._sums[number] += smact
            self._counts[number] += 1

    def _merge(self) -> None:
        def pairs(values: Sequence[Any]) -> list[Sequence[Any]]:
            return [values[i : i + 2] for i in range(0, len(values), 2)]

        self._memory = [
            max((one for one in two if one is not None), default=None)
            for two in pairs(self._memory)
        ]
        self._sums = [sum(two) for two in pairs(self._sums)]
        self._counts = [sum(two) for two in pairs(self._counts)]
        self.step_s *= 2

    def plain(self) -> dict[str, Any]:
        means = [
            round(total / count, 3) if count else None
            for total, count in zip(self._sums, self._counts, strict=True)
        ]
        return {
            "start_s": round(self.start_s, 3),
            "step_s": self.step_s,
            "memory_mib": list(self._memory),
            "smact": means,
        }

    @classmethod
    def of(cls, plain: dict[str, Any]) -> "Series":
        """From a record, to be continued; raises KeyError, TypeError or ValueError."""
        made = cls(float(plain["start_s"]), int(plain["step_s"]))
        memory, smact = list(plain["memory_mib"])[:POINTS], list(plain["smact"])[:POINTS]
        if made.step_s < 1 or len(memory) != len(smact):
            raise ValueError("series")
        made._memory = [None if one is None else int(one) for one in memory]
        # the number of samples of a mean is not stored: assume one for each second of the step
        made._counts = [0 if one is None else made.step_s for one in smact]
        made._sums = [0.0 if one is None else float(one) * made.step_s for one in smact]
        return made
