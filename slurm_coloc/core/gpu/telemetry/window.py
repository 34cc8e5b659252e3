# SPDX-License-Identifier: Apache-2.0
"""The mean of a figure over the last seconds."""

from collections import deque

SPAN_S = 90.0


class Window:
    """Values with their times (monotonic seconds)."""

    def __init__(self, span_s: float = SPAN_S) -> None:
        self._span_s = span_s
        self._values: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def add(self, at_s: float, value: float | None) -> None:
        """Add a value (None: left out) and drop those that are too old."""
        if value is not None:
            self._values.append((at_s, value))
            self._sum += value
        while self._values and self._values[0][0] <= at_s - self._span_s:
            self._sum -= self._values.popleft()[1]
        if not self._values:
            self._sum = 0.0  # removes the rounding error

    @property
    def mean(self) -> float | None:
        """The mean; None without a value in that time."""
        return max(0.0, self._sum / len(self._values)) if self._values else None
