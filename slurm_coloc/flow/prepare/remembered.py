# SPDX-License-Identifier: Apache-2.0
"""The last so many things, each for a while."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Remembered(Generic[Value]):
    """At most ``most`` values by key, each for ``for_s`` seconds; the one that was not used for
    longest goes first."""

    def __init__(
        self, most: int, for_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._for_s, self._clock = most, for_s, clock
        self._values: OrderedDict[str, tuple[float, Value]] = OrderedDict()

    def get(self, key: str) -> Value | None:
        """None where it is not known, or no longer."""
        found = self._values.get(key)
        if found is None:
            return None
        if found[0] < self._clock():
            del self._values[key]
            return None
        self._values.move_to_end(key)
        return found[1]

    def put(self, key: str, value: Value) -> None:
        self._values[key] = self._clock() + self._for_s, value
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def __len__(self) -> int:
        return len(self._values)
