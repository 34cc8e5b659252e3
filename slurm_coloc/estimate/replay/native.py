# SPDX-License-Identifier: Apache-2.0
"""The C part of the replay (kernel/allocator.c), some thirty times as fast as the Python one."""

import ctypes
from array import array
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec

from slurm_coloc.errors import SummaryError

#: built where the package is installed with a C compiler at hand (pyproject.toml)
MODULE = "slurm_coloc.estimate.replay._kernel"
_DONE, _NO_MEMORY, _TOO_LARGE, _NOT_THERE = range(4)


def not_there(event: int) -> SummaryError:
    """What a rebuilt step is refused for: its rows do not follow from one another."""
    return SummaryError(f"the rebuilt step cannot be replayed (event {event})", "no_replay")


@lru_cache(1)
def _library() -> ctypes.CDLL | None:
    spec = find_spec(MODULE)
    return None if spec is None or spec.origin is None else ctypes.CDLL(spec.origin)


def replay(events: Sequence[int]) -> tuple[int, int] | None:
    """Bytes reserved and allocated at their highest; None where the C part does not answer: it is
    not there, or a number leaves 60 bits. Raises SummaryError as allocator.replay."""
    library = _library()
    if library is None:
        return None
    try:
        given = array("q", events)
    except OverflowError:
        return None
    reserved, allocated, bad = (ctypes.c_int64() for _ in range(3))
    result = library.allocator_replay(
        ctypes.c_void_p(given.buffer_info()[0]),
        ctypes.c_int64(len(given)),
        *(ctypes.byref(one) for one in (reserved, allocated, bad)),
    )
    if result == _NOT_THERE:
        raise not_there(bad.value)
    return None if result != _DONE else (reserved.value, allocated.value)
