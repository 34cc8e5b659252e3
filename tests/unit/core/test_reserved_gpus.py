# SPDX-License-Identifier: Apache-2.0
"""GPUs that are kept for jobs that wait for whole ones."""

from collections.abc import Sequence

import pytest

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest, Resident
from slurm_coloc.core.place.placing import Conditions, View
from slurm_coloc.core.place.queue_discipline import Guard
from slurm_coloc.core.place.reserved_gpus import ReservedGpus

WHOLE = PlaceRequest(1, 1, None, None, 0.0, share=False)
SHARE = PlaceRequest(9, 1, 1000, None, 0.0, run_s=10.0)


def slot(index: int, *ends: float | None, node: int = 0, **values: bool) -> GpuSlot:
    """A seat whose jobs are expected to end then."""
    found = GpuSlot(index, node, "a100", 40_000, **values)
    found.residents = [Resident(PlaceRequest(100 + index, 1, 1000, None, 0.0), one) for one in ends]
    return found


def wide(job_id: int, gpus: int) -> PlaceRequest:
    return PlaceRequest(job_id, gpus, None, None, 0.0, share=False)


@pytest.mark.parametrize(
    ("requests", "slots", "expected"),
    [
        ([WHOLE], [slot(0, 90.0), slot(1, 20.0, 50.0), slot(2, 60.0)], {1}),
        ([WHOLE, wide(2, 1)], [slot(0, 90.0), slot(1, 20.0, 50.0), slot(2, 60.0)], {1, 2}),
        ([WHOLE], [slot(0, None), slot(1, 80.0)], {1}),  # nobody knows when the first is free
        ([WHOLE], [slot(0, None, None), slot(1, None)], {1}),
        ([WHOLE], [slot(0, 10.0, for_whole=False), slot(1, 80.0)], {1}),
        # Several: of one node, the one that has them first; what is kept already does not count.
        ([wide(2, 2)], [slot(0, 5.0), slot(1, 90.0), *(slot(n, 80.0, node=1) for n in (2, 3))],
         {2, 3}),
        ([WHOLE, wide(2, 2)], [slot(0, 5.0), slot(1, 90.0)], {0, 1}),
        # More than a node has: of all. More than there are: it can never start.
        ([wide(2, 2)], [slot(0, 5.0), slot(1, 90.0, node=1)], {0, 1}),
        ([wide(2, 3)], [slot(0, 5.0), slot(1, 90.0)], set()),
    ],
)  # fmt: skip
def test_what_is_free_first(
    requests: list[PlaceRequest], slots: list[GpuSlot], expected: set[int]
) -> None:
    kept = ReservedGpus()
    for request in requests:
        kept.add(request, slots)
    assert {one.index for one in slots if kept.has(one)} == expected


def test_an_idle_gpu_is_no_secret() -> None:
    """Whoever starts there does as without sharing; what comes behind joins nobody there."""
    kept, slots = ReservedGpus(), [slot(0), slot(1, 50.0)]
    kept.add(wide(2, 2), slots)
    assert [kept.has(one) for one in slots] == [False, True]


@pytest.mark.parametrize(("keep", "open_to_it"), [(True, [0]), (False, [0, 2])])
def test_backfill_joins_only_where_nothing_is_kept(keep: bool, open_to_it: list[int]) -> None:
    """Backfill alone keeps what the first one waits for, and not what the second does."""
    slots: Sequence[GpuSlot] = [slot(0, 900.0), slot(1, 500.0), slot(2, 700.0)]
    view = View(0.0, [WHOLE, wide(2, 1), SHARE], slots, Conditions(keep_whole=keep), depth=10)
    guard = Guard(view)
    guard.blocked(WHOLE)
    guard.blocked(wide(2, 1))
    assert [one.index for one in guard.allowed(SHARE, slots)] == open_to_it
