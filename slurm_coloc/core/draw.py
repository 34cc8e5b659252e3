# SPDX-License-Identifier: Apache-2.0
"""Numbers that look drawn and are always the same for one seed: core has no other chance."""

import math
from collections.abc import MutableSequence, Sequence
from typing import Any, TypeVar

T = TypeVar("T")

_MASK = (1 << 64) - 1


class Draw:
    """SplitMix64 (Steele, Lea, Flood 2014): 64 bits of state, an addition and a hash a number."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return mixed ^ (mixed >> 31)

    def bits(self) -> int:
        """64 of them: the seed of another one."""
        return self._next()

    def part(self) -> float:
        """In [0, 1)."""
        return (self._next() >> 11) / (1 << 53)

    def below(self, bound: int) -> int:
        """In 0 .. bound - 1."""
        return self._next() % bound

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Another order, in place."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def one_of(self, items: Sequence[T]) -> T:
        """One of them."""
        return items[self._next() % len(items)]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """So many different ones."""
        mine = list(items)
        self.shuffle(mine)
        return mine[:count]

    def normal(self, sigma: float = 1.0) -> float:
        """Of a normal distribution around 0 (Box and Muller 1958)."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.part()))
        return sigma * radius * math.cos(2.0 * math.pi * self.part())
