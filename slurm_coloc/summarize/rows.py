# SPDX-License-Identifier: Apache-2.0
"""The rows of torchinfo's table, written down while a model runs.

torchinfo runs a model for its table; what is recorded runs it anyway, and torchinfo's own sums over
a tree of a thousand rows take as long as the step. So hooks note each module that is called, what
it got and what it gave, and nothing else: no tensor is kept or made. Which rows there are, and in
which order, follows torchinfo 1.8 (tests/unit/summarize/test_table.py has both texts beside each
other).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.nn.modules import module as modules

#: bytes of an element where autocast made it half as large: the table is that of the model in fp32
WHOLE = 4


@dataclass(slots=True, eq=False)
class Place:
    """A module where the model has it; of several places the last one counts."""

    module: torch.nn.Module
    depth: int
    above: Place | None


@dataclass(slots=True, eq=False)
class Row:
    """One call of a module, or a container that is never called. ``given``, ``made``: shapes of the
    first tensor; ``made_bytes``: of that one."""

    place: Place
    given: list[int]
    made: list[int]
    made_bytes: int = 0
    again: bool = False

    @property
    def module(self) -> torch.nn.Module:
        return self.place.module

    @property
    def depth(self) -> int:
        return self.place.depth


class Rows:
    """Notes every module of ``model`` that is called between its enter and its exit. ``whole``:
    halves are autocast's and count as four bytes."""

    def __init__(self, model: torch.nn.Module, whole: bool = False) -> None:
        self._places = _places(model)
        self._whole = whole
        self._called: list[Row] = []
        #: of each module the rows that wait for its end, for one may run inside itself
        self._open: dict[int, Row] = {}
        self._handles: list[Any] = []

    def __enter__(self) -> Rows:
        self._handles = [
            modules.register_module_forward_pre_hook(self._begins),
            modules.register_module_forward_hook(self._ends),
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _begins(self, module: torch.nn.Module, given: Any) -> None:
        place = self._places.get(id(module))
        if place is not None:
            row = self._open[id(module)] = Row(place, [], [])
            self._called.append(row)

    def _ends(self, module: torch.nn.Module, given: Any, made: Any) -> None:
        row = self._open.get(id(module))
        if row is None:
            return
        first = _first(given)
        row.given = [] if first is None else list(first.shape)
        first = _first(made, last=True)
        if first is not None:
            row.made = list(first.shape)
            row.made_bytes = prod(row.made) * self._element(first)

    def _element(self, tensor: torch.Tensor) -> int:
        if self._whole and tensor.is_floating_point():
            return max(WHOLE, tensor.element_size())
        return tensor.element_size()

    def taken(self) -> list[Row]:
        """All rows in order, with the containers around them; a module that was there before is
        marked."""
        rows: list[Row] = []
        seen: set[int] = set()
        around: dict[int, torch.nn.Module] = {}
        containers: dict[int, Row] = {}

        def add(row: Row) -> None:
            row.again = row.again or id(row.module) in seen
            seen.add(id(row.module))
            rows.append(row)
            around[row.depth] = row.module

        for row in self._called:
            for place in _above(row.place):
                if around.get(place.depth) is not place.module:
                    add(containers.setdefault(id(place), Row(place, [], [])))
            add(row)
            for depth in [depth for depth in around if depth > row.depth]:
                del around[depth]
        return rows


def _places(model: torch.nn.Module) -> dict[int, Place]:
    """By id of the module, all that are below ``model``."""
    found: dict[int, Place] = {}
    waiting = [Place(model, 0, None)]
    while waiting:
        place = waiting.pop()
        found[id(place.module)] = place
        below = [one for one in place.module._modules.values() if one is not None]
        waiting += [Place(one, place.depth + 1, place) for one in reversed(below)]
    return found


def _above(place: Place) -> list[Place]:
    """What a place is in, the outermost first, without the model itself."""
    found: list[Place] = []
    above = place.above
    while above is not None and above.depth:
        found.append(above)
        above = above.above
    return found[::-1]


def _first(given: Any, last: bool = False) -> torch.Tensor | None:
    """The tensor that torchinfo takes a value for. ``last``: of a dictionary the last one."""
    while not isinstance(given, torch.Tensor):
        if hasattr(given, "tensors"):  # torchvision's ImageList, DETR's NestedTensor
            given = given.tensors
        elif isinstance(getattr(given, "data", None), torch.Tensor):  # a packed sequence
            given = given.data
        elif isinstance(given, Mapping) and given:
            given = list(given.values())[-1 if last else 0]
        elif isinstance(given, (list, tuple)) and given:
            given = given[0]
        else:
            return None
        last = False
    return given


@dataclass(frozen=True, slots=True)
class Count:
    """Parameters of a module with all that is below it, each once."""

    elements: int
    trained: int
    size: int


class Counts:
    """Of every module that it is asked for, remembered."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, Count]] = {}
        self._sums: dict[int, Count] = {}

    def of(self, module: torch.nn.Module) -> Count:
        """The module's own and all below."""
        known = self._sums.get(id(module))
        if known is None:
            known = self._sums[id(module)] = _sum(self._below(module).values())
        return known

    def _below(self, module: torch.nn.Module) -> dict[int, Count]:
        """Each parameter by its id."""
        held = self._held.get(id(module))
        if held is None:
            held = self._held[id(module)] = {
                id(one): _count(one) for one in module._parameters.values() if one is not None
            }
            for below in module._modules.values():
                if below is not None:
                    held.update(self._below(below))
        return held


def _count(one: torch.nn.Parameter) -> Count:
    elements = one.numel()
    return Count(elements, elements if one.requires_grad else 0, elements * one.element_size())


def _sum(counts: Iterable[Count]) -> Count:
    elements = trained = size = 0
    for one in counts:
        elements, trained, size = elements + one.elements, trained + one.trained, size + one.size
    return Count(elements, trained, size)
