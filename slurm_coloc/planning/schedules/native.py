# SPDX-License-Identifier: Apache-2.0
"""The C part of the search (kernel/lines.h), and a problem as the arrays that it reads."""

import ctypes
from array import array
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import accumulate, chain
from typing import Any

from slurm_coloc.planning.schedules.problem import Problem, Rules, Spot

#: built where the package is installed with a C compiler at hand (pyproject.toml)
MODULE = "slurm_coloc.planning.schedules._kernel"
#: why it is not there, for people
NOT_BUILT = (
    "was not built, for there was no C compiler when slurm-coloc was installed: install gcc and "
    "libc6-dev, then slurm-coloc again"
)

_INT, _LONG, _DOUBLE, _BYTE = (
    ctypes.c_int32,
    ctypes.c_int64,
    ctypes.c_double,
    ctypes.c_uint8,
)
_Speeds = ctypes.CFUNCTYPE(_INT, _INT, _INT, ctypes.POINTER(_INT), ctypes.POINTER(_DOUBLE))


class _Problem(ctypes.Structure):
    """``struct lines_problem``."""

    _fields_ = (
        *((name, _INT) for name in ("jobs", "movable", "slots", "most", "cases")),
        ("ruled", _INT),
        ("bounded", _INT),
        ("budget", _DOUBLE),
        *((name, ctypes.POINTER(_INT)) for name in ("gpus", "kind", "group", "after")),
        *((name, ctypes.POINTER(_BYTE)) for name in ("lone", "leads")),
        *((name, ctypes.POINTER(_DOUBLE)) for name in ("submit", "weight", "smact", "bound")),
        ("run", ctypes.POINTER(_DOUBLE)),
        ("room", ctypes.POINTER(_LONG)),
        ("need", ctypes.POINTER(_LONG)),
        ("alike", ctypes.POINTER(_INT)),
        *((name, ctypes.POINTER(_INT)) for name in ("open_at", "open_slot")),
        *((name, ctypes.POINTER(_INT)) for name in ("nodes_at", "node_at", "node_slot")),
        ("speeds", _Speeds),
    )


class _Spots(ctypes.Structure):
    """``struct lines_spots``."""

    _fields_ = (
        ("at", ctypes.POINTER(_INT)),
        ("slot", ctypes.POINTER(_INT)),
        ("key", ctypes.POINTER(_DOUBLE)),
        ("beside", ctypes.POINTER(_INT)),
    )


class Ways(ctypes.Structure):
    """``struct lines_ways``: weights of what is minimised, and how often what is tried."""

    _fields_ = tuple(
        (name, _DOUBLE)
        for name in (
            *("slots", "jobs", "critical", "twice", "hot", "cold"),
            *("move", "swap", "near", "width"),
        )
    )


def built() -> bool:
    """Whether the C part is there."""
    return find_spec(MODULE) is not None


@lru_cache(1)
def _library() -> ctypes.CDLL:
    spec = find_spec(MODULE)
    if spec is None or spec.origin is None:
        raise ImportError(f"{MODULE} {NOT_BUILT}")
    return ctypes.CDLL(spec.origin)


class Arrays:
    """A problem, and cases of its run times, as the C part reads them."""

    def __init__(self, problem: Problem, runs: Sequence[Sequence[float]]) -> None:
        self._speeds = problem.speeds
        self._raised: Exception | None = None
        jobs = len(problem.run)
        rules = problem.rules or Rules([False] * jobs, [0] * jobs, [0.0] * jobs, [0.0] * jobs)
        nodes = list(chain.from_iterable(problem.nodes))
        after = problem.after or [-1] * jobs
        leads = set(after)
        # What the structure points to lives as long as this object.
        self._held: list[object] = []
        self._at = self._of("i", _starts(problem.gpus))
        self._gpus = problem.gpus
        self._problem = _Problem(
            *(jobs, problem.movable, len(problem.room), problem.most, len(runs)),
            problem.rules is not None,
            rules.bounded,
            rules.budget,
            *(self._of("i", values) for values in (problem.gpus, problem.kind, rules.group)),
            self._of("i", after),
            *(
                self._of("B", values)
                for values in (rules.lone, [one in leads for one in range(jobs)])
            ),
            *(self._of("d", values) for values in (problem.submit, problem.weight)),
            *(self._of("d", values) for values in (rules.smact, rules.bound)),
            self._of("d", chain.from_iterable(runs)),
            self._of("q", problem.room),
            self._of("q", chain.from_iterable(problem.need)),
            self._of("i", problem.alike),
            self._of("i", _starts(map(len, problem.slots))),
            self._of("i", chain.from_iterable(problem.slots)),
            self._of("i", _starts(map(len, problem.nodes))),
            self._of("i", _starts(map(len, nodes))),
            self._of("i", chain.from_iterable(nodes)),
            _Speeds(self._answer),
        )

    def anneal(
        self, ways: Ways, spots: Sequence[Spot], seed: int, tries: int
    ) -> tuple[float, float, list[Spot]]:
        """(score, mean makespan, spots) of the best plan of so many changes."""
        slots, keys, besides, given = self._given(spots)
        score, makespan_s, draw = _DOUBLE(), _DOUBLE(), ctypes.c_uint64(seed)
        self._done(
            _library().lines_anneal(
                *(ctypes.byref(one) for one in (self._problem, ways, given)),
                tries,
                *(ctypes.byref(one) for one in (draw, score, makespan_s)),
            )
        )
        ends = accumulate(self._gpus)
        found = [
            Spot(tuple(slots[end - gpus : end]), key, beside)
            for end, gpus, key, beside in zip(ends, self._gpus, keys, besides, strict=True)
        ]
        return score.value, makespan_s.value, found

    def times(self, spots: Sequence[Spot]) -> tuple[list[float], list[float]]:
        """Start and end (s) of each job in the first case; infinite: never."""
        *_, given = self._given(spots)
        start_s, end_s = (array("d", [0.0] * len(spots)) for _ in range(2))
        self._done(
            _library().lines_times(
                *(ctypes.byref(one) for one in (self._problem, given)),
                *(_pointer(one) for one in (start_s, end_s)),
            )
        )
        return start_s.tolist(), end_s.tolist()

    def _given(
        self, spots: Sequence[Spot]
    ) -> tuple["array[int]", "array[float]", "array[int]", _Spots]:
        for job, (spot, gpus) in enumerate(zip(spots, self._gpus, strict=True)):
            if len(spot.slots) != gpus:
                raise ValueError(f"job {job}: {len(spot.slots)} slots for {gpus} GPUs")
        slots = array("i", chain.from_iterable(spot.slots for spot in spots))
        keys = array("d", (spot.key for spot in spots))
        besides = array("i", (spot.beside for spot in spots))
        given = _Spots(self._at, _pointer(slots), _pointer(keys), _pointer(besides))
        return slots, keys, besides, given

    def _answer(self, slot: int, number: int, kinds: Any, speeds: Any) -> int:
        """Called from C: an exception must not pass through it."""
        try:
            for place, speed in enumerate(self._speeds(slot, kinds[:number])):
                speeds[place] = speed
        except Exception as raised:
            self._raised = raised
            return 1
        return 0

    def _done(self, failed: int) -> None:
        if self._raised is not None:
            raise self._raised
        if failed:
            raise MemoryError("planning ahead")

    def _of(self, code: str, values: Iterable[float]) -> object:
        held = array(code, values)
        self._held.append(held)
        return _pointer(held)


def _pointer(held: "array[int] | array[float]") -> object:
    kinds: dict[str, Any] = {"i": _INT, "B": _BYTE, "q": _LONG, "d": _DOUBLE}
    address, _ = held.buffer_info()
    return ctypes.cast(address, ctypes.POINTER(kinds[held.typecode]))


def _starts(lengths: Iterable[int]) -> list[int]:
    return [0, *accumulate(lengths)]
