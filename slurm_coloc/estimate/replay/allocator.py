# SPDX-License-Identifier: Apache-2.0
"""PyTorch's caching allocator for CUDA, played over a list of allocations and frees.

What the allocator takes from the driver is what nvidia-smi shows, and that is more than what the
tensors hold: it rounds, takes whole segments, splits and merges blocks, and gives nothing back. So
a job's peak depends on the order of its allocations, which no sum of formulas knows.

Rules and sizes are those of c10/cuda/CUDACachingAllocator.cpp (PyTorch 2.x): requests are rounded
to 512 bytes; up to 1 MiB they come from segments of 2 MiB, up to 10 MiB from segments of 20 MiB,
above that from a segment of their own, rounded to 2 MiB. Of the free blocks the smallest that fits
is taken, of equal ones that of the lowest address. A block is split where at least 512 bytes (small
pool) or more than 1 MiB (large pool) would be left, and merges with its free neighbours.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_coloc.estimate.replay import native
from slurm_coloc.estimate.replay.native import not_there

MIB = 2**20
ROUND = 512
SMALL = MIB  #: largest request of the small pool
SMALL_SEGMENT = 2 * MIB
MEDIUM = 10 * MIB  #: from here on a request has a segment of its own
MEDIUM_SEGMENT = 20 * MIB
LARGE_ROUND = 2 * MIB
UNLIMITED = 2**63
#: What the driver's pool takes at once: an assumption, not measured here and not published.
DRIVER_PAGE = 32 * MIB


@dataclass(frozen=True, slots=True)
class Rules:
    """What PYTORCH_CUDA_ALLOC_CONF says, and how much memory (bytes) the process can see.

    ``expandable``: expandable_segments:True. ``max_split``: max_split_size_mb as bytes.
    ``divisions``: roundup_power2_divisions for sizes from 1, 2, 4 ... MiB on; () for none.
    ``driver_pool``: backend:cudaMallocAsync. The driver's pool is taken for one segment that grows
    by DRIVER_PAGE: a model, for what the driver does inside is not published.
    """

    expandable: bool = False
    max_split: int = UNLIMITED
    visible: int = UNLIMITED
    divisions: tuple[int, ...] = ()
    driver_pool: bool = False

    @property
    def grows(self) -> bool:
        """Whether a pool is one segment that grows at its end."""
        return self.expandable or self.driver_pool

    def rounded(self, size: int) -> int:
        """Bytes of the block for a request (``round_size`` of PyTorch's allocator)."""
        if self.divisions and not self.driver_pool:
            place = max(0, size.bit_length() - MIB.bit_length())
            parts = self.divisions[min(place, len(self.divisions) - 1)]
            if parts > 1 and size > ROUND * parts:
                step = (1 << (size.bit_length() - 1)) // parts
                return -(-size // step) * step
        return -(-size // ROUND) * ROUND


@dataclass(frozen=True, slots=True)
class Replayed:
    """Bytes at their highest: taken from the driver, and in use by tensors. ``failed``: position of
    the allocation that did not fit in the visible memory, or None."""

    reserved: int
    allocated: int
    failed: int | None = None


class _Pool:
    """Free blocks as (size, address) in order, and where each block of the pool ends."""

    __slots__ = ("ends", "free", "page", "tail")

    def __init__(self, page: int) -> None:
        self.free: list[tuple[int, int]] = []
        self.ends: dict[int, int] = {}  # start of a free block by its end
        self.page = page
        self.tail = 0  # end of the expandable segment


class Allocator:
    """One GPU's allocator of one process. Addresses grow with each segment: the driver's are not
    known, and only their order matters."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self._small, self._large = _Pool(SMALL_SEGMENT), _Pool(MEDIUM_SEGMENT)
        if self._rules.driver_pool:
            self._small = self._large = _Pool(DRIVER_PAGE)
        self._grows = self._rules.grows
        self._plain = not self._rules.divisions
        self._next = 0
        self._segments: dict[int, int] = {}  # size by start
        self._starts: dict[int, int] = {}  # size of every free block by start
        self._used: dict[int, tuple[int, _Pool]] = {}
        self.reserved = self.allocated = 0
        self.peak_reserved = self.peak_allocated = 0

    def allocate(self, size: int) -> int | None:
        """The address of ``size`` bytes, None where they do not fit. 0 bytes take nothing: -1."""
        if size <= 0:
            return -1
        size = -(-size // ROUND) * ROUND if self._plain else self._rules.rounded(size)
        pool = self._small if size <= SMALL else self._large
        found = self._fitting(pool, size)
        if found is None:
            found = self._grow(pool, size)
            if found is None:
                return None
        return self._take(pool, found, size)

    def release(self, address: int) -> None:
        """Give the block at ``address`` back to the pool."""
        if address < 0:
            return
        size, pool = self._used.pop(address)
        self.allocated -= size
        self._put(pool, address, size)

    def _fitting(self, pool: _Pool, size: int) -> tuple[int, int] | None:
        free = pool.free
        index = bisect_left(free, (size, -1))
        if index == len(free):
            return None
        block = free[index]
        limit = self._rules.max_split
        if pool is self._large and limit < UNLIMITED and not self._grows:
            # A block too large to be split is for large requests only, and not for much smaller.
            if size < limit <= block[0]:
                return None
            if size >= limit and block[0] >= size + MEDIUM_SEGMENT:
                return None
        del free[index]
        return block

    def _take(self, pool: _Pool, block: tuple[int, int], size: int) -> int:
        whole, start = block
        starts, ends = self._starts, pool.ends
        starts.pop(start, None)
        ends.pop(start + whole, None)
        rest = whole - size
        if pool is self._small or self._grows:
            split = rest >= ROUND
        else:
            split = size < self._rules.max_split and rest > SMALL
        if split:
            insort(pool.free, (rest, start + size))
            starts[start + size] = rest
            ends[start + whole] = start + size
        else:
            size = whole
        self._used[start] = (size, pool)
        self.allocated += size
        if self.allocated > self.peak_allocated:
            self.peak_allocated = self.allocated
        return start

    def _put(self, pool: _Pool, start: int, size: int) -> None:
        """A free block, merged with free neighbours. Segments do not touch each other."""
        free, starts, ends = pool.free, self._starts, pool.ends
        before = ends.pop(start, None)
        if before is not None:
            length = starts.pop(before)
            del free[bisect_left(free, (length, before))]
            start, size = before, size + length
        length_after = starts.pop(start + size, None)
        if length_after is not None:
            del free[bisect_left(free, (length_after, start + size))]
            del ends[start + size + length_after]
            size += length_after
        insort(free, (size, start))
        starts[start] = size
        ends[start + size] = start

    def _grow(self, pool: _Pool, size: int) -> tuple[int, int] | None:
        """A block of at least ``size`` bytes from the driver; cached segments go back first where
        the visible memory is too small."""
        for again in (False, True):
            found = self._extend(pool, size) if self._grows else self._segment(pool, size)
            if found is not None or again:
                return found
            self._give_back()
        return None

    def _segment(self, pool: _Pool, size: int) -> tuple[int, int] | None:
        if pool is self._small:
            length = SMALL_SEGMENT
        elif size < MEDIUM:
            length = MEDIUM_SEGMENT
        else:
            length = -(-size // LARGE_ROUND) * LARGE_ROUND
        if not self._reserve(length):
            return None
        start = self._next
        self._next = start + length + ROUND  # a gap: neighbours of other segments never merge
        self._segments[start] = length
        return length, start

    def _extend(self, pool: _Pool, size: int) -> tuple[int, int] | None:
        """More pages at the end of the pool's one segment, joined with what is free there."""
        if not pool.tail:
            pool.tail = UNLIMITED if pool is self._large else 2 * UNLIMITED
        last = pool.ends.get(pool.tail)
        has = self._starts[last] if last is not None else 0
        more = -(-(size - has) // pool.page) * pool.page
        if not self._reserve(more):
            return None
        start = pool.tail
        pool.tail += more
        if last is None:
            return more, start
        del pool.free[bisect_left(pool.free, (has, last))], pool.ends[start], self._starts[last]
        return has + more, last

    def _reserve(self, length: int) -> bool:
        if self.reserved + length > self._rules.visible:
            return False
        self.reserved += length
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved
        return True

    def _give_back(self) -> None:
        """Segments that are wholly free go back to the driver, as before every failure."""
        for pool in (self._small, self._large):
            if self._grows:
                self._shrink(pool)
                continue
            for size, start in [b for b in pool.free if self._segments.get(b[1]) == b[0]]:
                self._drop(pool, start, size)
                del self._segments[start]
                self.reserved -= size

    def _shrink(self, pool: _Pool) -> None:
        """Pages that hold nothing are unmapped; here those at the end, which can grow again."""
        last = pool.ends.get(pool.tail)
        if last is None:
            return
        size = self._starts[last]
        pages = size // pool.page * pool.page
        self._drop(pool, last, size)
        pool.tail -= pages
        self.reserved -= pages
        if size > pages:
            self._put(pool, last, size - pages)

    def _drop(self, pool: _Pool, start: int, size: int) -> None:
        del pool.free[bisect_left(pool.free, (size, start))]
        del self._starts[start], pool.ends[start + size]


def replay(events: Sequence[int], rules: Rules | None = None) -> Replayed:
    """Play ``events``: a number from 0 on allocates so many bytes, and -1 - k frees what the k-th
    allocation (from 0) got. Raises SummaryError no_replay for a second free or one of the
    future."""
    if rules is None or rules == Rules():
        played = native.replay(events)
        if played is not None:
            return Replayed(*played)
    return replay_slowly(events, rules)


def replay_slowly(events: Sequence[int], rules: Rules | None = None) -> Replayed:
    """The same without the C part, and for all rules."""
    allocator = Allocator(rules)
    where: list[int | None] = []
    allocate, release = allocator.allocate, allocator.release
    for position, event in enumerate(events):
        if event >= 0:
            address = allocate(event)
            if address is None:
                return Replayed(allocator.peak_reserved, allocator.peak_allocated, position)
            where.append(address)
            continue
        index = -1 - event
        held = where[index] if index < len(where) else None
        if held is None:
            raise not_there(position)
        release(held)
        where[index] = None
    return Replayed(allocator.peak_reserved, allocator.peak_allocated)
