# SPDX-License-Identifier: Apache-2.0
"""A bounded store that many users fill and none can empty for the others."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class PerUser(Generic[K, V]):
    """Values by their keys, each held for one user. Where there is no room the user who holds most
    loses the value that was used least lately."""

    def __init__(
        self, most: int, most_a_user: int, weight: Callable[[V], int] = lambda value: 1
    ) -> None:
        """``most``, ``most_a_user``: the sum of ``weight`` over the values of all users, of one."""
        self._most, self._most_a_user, self._weight = most, most_a_user, weight
        self._held: dict[int, OrderedDict[K, V]] = {}
        self._owner: dict[K, int] = {}
        self._weights: dict[int, int] = {}

    def put(self, uid: int, key: K, value: V) -> None:
        """Keep a value for ``uid``, in the place of one that has this key."""
        self.drop(key)
        weight = self._weight(value)
        if weight > self._most_a_user:
            return
        while self._weights.get(uid, 0) + weight > self._most_a_user:
            self._drop_oldest(uid)
        while sum(self._weights.values()) + weight > self._most:
            self._drop_oldest(max(self._weights, key=self._weights.__getitem__))
        self._held.setdefault(uid, OrderedDict())[key] = value
        self._owner[key] = uid
        self._weights[uid] = self._weights.get(uid, 0) + weight

    def get(self, key: K) -> V | None:
        """The value, whoever it is held for; it counts as used."""
        uid = self._owner.get(key)
        if uid is None:
            return None
        self._held[uid].move_to_end(key)
        return self._held[uid][key]

    def drop(self, key: K) -> None:
        """Forget a value, if it is there."""
        uid = self._owner.pop(key, None)
        if uid is None:
            return
        self._weights[uid] -= self._weight(self._held[uid].pop(key))
        if not self._held[uid]:
            del self._held[uid], self._weights[uid]

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()
        self._owner.clear()
        self._weights.clear()

    def __len__(self) -> int:
        return len(self._owner)

    def _drop_oldest(self, uid: int) -> None:
        self.drop(next(iter(self._held[uid])))
