# SPDX-License-Identifier: Apache-2.0
"""GPUs that are kept for jobs that wait for whole ones."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest, Resident
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


def plain_choice(request: PlaceRequest, slots: Sequence[GpuSlot], taken: set[int]) -> set[int]:
    """The slots that ``add`` reserves, each offer made anew."""
    nodes = sorted({one.node for one in slots})
    groups = [[one for one in slots if one.node == node] for node in nodes]
    groups = [group for group in groups if len(group) >= request.gpus]
    if not groups and len(slots) >= request.gpus:
        groups = [list(slots)]

    def order(one: GpuSlot) -> tuple[float, int, int]:
        ends = [INF if job.ends_s is None else job.ends_s for job in one.residents]
        return max(ends, default=-INF), len(ends), one.index

    offers = [
        sorted((one for one in group if one.index not in taken), key=order)[: request.gpus]
        for group in groups
    ]
    offers = [found for found in offers if found]
    best = min(offers, key=lambda found: (-len(found), order(found[-1])), default=[])
    return {one.index for one in best}


END = st.one_of(st.none(), st.integers(0, 5).map(float))


@given(
    st.lists(st.lists(st.lists(END, max_size=3), min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 15), END), max_size=12),
)
def test_offers_are_as_if_made_anew(
    nodes: list[list[list[float | None]]], steps: list[tuple[int, int, float | None]]
) -> None:
    """Between two reservations a job starts somewhere."""
    slots: list[GpuSlot] = []
    for node, gpus in enumerate(nodes):
        slots += [slot(len(slots) + n, *ends, node=node) for n, ends in enumerate(gpus)]
    reserved, taken = ReservedGpus(), set[int]()
    for number, (gpus, place, end) in enumerate(steps):
        request = wide(1000 + number, gpus)
        taken |= plain_choice(request, slots, taken)
        reserved.add(request, slots)
        assert reserved.slots == taken
        there = slots[place % len(slots)].residents
        there.append(Resident(PlaceRequest(2000 + number, 1, 1000, None, 0.0), end))
