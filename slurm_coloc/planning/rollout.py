# SPDX-License-Identifier: Apache-2.0
"""A rollout: how a plan would go on from now, by what is expected of the jobs.

A plan is an order of the waiting jobs and a style of placing them. Played with list scheduling and
the model of interference it gives the time at which everything would be done. This is the hot loop
of planning ahead: plain lists of numbers, no objects.
"""

from dataclasses import dataclass

from slurm_coloc.planning.combos import Kinds
from slurm_coloc.planning.snapshot import PlanSnapshot

#: how a slot is chosen among those that admit a job
GAIN, LEVEL, FIT = range(3)
#: a neighbour slows a job down to about 1/2.1 under the reference model before the GPU is full
SLOWEST = 2.1


@dataclass(frozen=True, slots=True)
class Style:
    """How a plan places. ``rule``: GAIN, the slot whose throughput grows most; LEVEL, the one with
    the least work; FIT, the one whose memory is filled best. ``hold``: so many jobs that cannot
    start keep slots free for themselves. ``min_gain``: a busy slot takes a job only where its
    throughput grows by so much (ratio of a GPU's SM activity)."""

    rule: int = GAIN
    hold: int = 0
    min_gain: float = -9.0


@dataclass(slots=True)
class Played:
    """How a plan went. ``end_s``: when all is done; ``mean_s``: the mean end of a job; ``dry_s``:
    the mean end of a slot; ``late_s``: seconds by which jobs started after they were due.
    ``first``: what it starts now, on which slots; ``starts``: all that it starts, in its order."""

    end_s: float
    mean_s: float
    dry_s: float
    late_s: float
    first: list[tuple[int, tuple[int, ...]]]
    starts: list[tuple[int, tuple[int, ...]]]


class Rollout:
    """One play of one plan."""

    def __init__(self, snapshot: PlanSnapshot, order: list[int], style: Style) -> None:
        self.snapshot, self.style = snapshot, style
        self.queue = order
        self.free = snapshot.free[:]
        self.on = [list(jobs) for jobs in snapshot.on]
        self.left = snapshot.left[:]
        self.slots_of = snapshot.slots_of[:]
        self.speed = [1.0] * len(snapshot.left)
        kind = snapshot.kind
        self.keys: list[Kinds] = [tuple(sorted(kind[job] for job in jobs)) for jobs in self.on]
        self.now = 0.0
        self.late = 0.0
        self.dirty: set[int] = set(range(len(self.on)))
        self.running = sorted({job for jobs in self.on for job in jobs})
        self.used: list[float] = [0.0] * len(self.on)
        self.tables: list[dict[int, float]] = [{}] * len(self.on)

    def play(self) -> Played:
        """Until the last job ends."""
        total = 0.0
        dry = [0.0] * len(self.on)
        first: list[tuple[int, tuple[int, ...]]] | None = None
        starts: list[tuple[int, tuple[int, ...]]] = []
        self._speeds()
        while True:
            started = self._place() if self.queue else []
            starts += started
            if first is None:
                first = started
            if self.dirty:
                self._speeds()
            if not self.running:
                break
            left, speed = self.left, self.speed
            step = min([left[job] / speed[job] for job in self.running])
            self.now += step
            gone = []
            for job in self.running:
                rest = left[job] - step * speed[job]
                left[job] = rest
                if rest <= 1e-6:
                    gone.append(job)
            for job in gone:
                self._end(job, dry)
                total += self.now
        count = len(self.left)
        # What could not be placed at all fits nowhere; it is the same for every plan.
        return Played(
            self.now,
            total / count if count else 0.0,
            sum(dry) / len(dry),
            self.late,
            first or [],
            starts,
        )

    # ---- changes ---------------------------------------------------------------------------

    def _end(self, job: int, dry: list[float]) -> None:
        snapshot = self.snapshot
        self.running.remove(job)
        kind = snapshot.kind[job]
        for slot in self.slots_of[job]:
            self.on[slot].remove(job)
            kinds = list(self.keys[slot])
            kinds.remove(kind)
            self.keys[slot] = tuple(kinds)
            if not self.on[slot]:
                self.free[slot] = snapshot.usable[slot]
            elif self.free[slot] >= 0:
                self.free[slot] += snapshot.need[job]
            self.dirty.add(slot)
            dry[slot] = self.now

    def _start(self, job: int, slots: tuple[int, ...]) -> None:
        snapshot = self.snapshot
        self.slots_of[job] = slots
        self.running.append(job)
        kind = snapshot.kind[job]
        for slot in slots:
            if not snapshot.share[job]:
                self.free[slot] = -1
            else:
                self.free[slot] -= snapshot.need[job]
            self.on[slot].append(job)
            self.keys[slot] = tuple(sorted((*self.keys[slot], kind)))
            self._refresh(slot)
            self.dirty.add(slot)
        if self.now > snapshot.due[job]:
            self.late += self.now - snapshot.due[job]

    def _refresh(self, slot: int) -> None:
        snapshot = self.snapshot
        self.used[slot], self.tables[slot] = snapshot.combos.of(snapshot.way[slot], self.keys[slot])

    def _speeds(self) -> None:
        """New speeds of all jobs that a change concerns: of each that on its slowest slot."""
        kind, tables, slots_of, speed = self.snapshot.kind, self.tables, self.slots_of, self.speed
        for slot in self.dirty:
            self._refresh(slot)
        for slot in self.dirty:
            for job in self.on[slot]:
                mine = slots_of[job]
                if len(mine) == 1:
                    speed[job] = tables[slot][kind[job]]
                else:
                    speed[job] = min([tables[one][kind[job]] for one in mine])
        self.dirty = set()

    # ---- placing ---------------------------------------------------------------------------

    def _place(self) -> list[tuple[int, tuple[int, ...]]]:
        """Start what the plan starts at this moment."""
        snapshot, hold = self.snapshot, self.style.hold
        free, need = self.free, snapshot.need
        started: list[tuple[int, tuple[int, ...]]] = []
        waits: list[int] = []
        locked: dict[int, float] = {}
        top = max(free)
        for job in self.queue:
            slots: tuple[int, ...] | None = None
            if snapshot.after[job] >= 0 and not self.slots_of[snapshot.after[job]]:
                waits.append(job)
                continue
            if need[job] <= top:
                scores = self._scores(job, locked)
                if snapshot.gpus[job] > 1:
                    slots = self._one_node(job, sorted(scores))
                elif scores:
                    slots = (min(scores)[1],)
            if slots is not None:
                self._start(job, slots)
                started.append((job, slots))
                top = max(free)
                continue
            waits.append(job)
            if hold > 0:
                hold -= 1
                if self.dirty:
                    self._speeds()
                self._lock(job, locked)
        self.queue = waits
        return started

    def _fits(self, job: int, slot: int) -> bool:
        """Whether the conditions let a job onto a slot that has the memory."""
        snapshot, jobs = self.snapshot, self.on[slot]
        if slot in snapshot.barred[job]:
            return False
        if not jobs:
            return snapshot.pool[slot] if snapshot.share[job] else snapshot.for_whole[slot]
        if not snapshot.share[job] or snapshot.lone[job] or len(jobs) >= snapshot.most:
            return False
        if snapshot.group[job] != snapshot.group[jobs[0]]:
            return False
        if snapshot.budget is not None and (
            sum(snapshot.smact[one] for one in jobs) + snapshot.smact[job] > snapshot.budget + 1e-9
        ):
            return False
        if not snapshot.bounded:
            return True
        kinds = tuple(sorted((*self.keys[slot], snapshot.kind[job])))
        speeds = snapshot.combos.of(snapshot.way[slot], kinds)[1]
        return all(
            snapshot.bound[one] * speeds[snapshot.kind[one]] + 1e-9 >= 1.0 for one in (*jobs, job)
        )

    def _score(self, job: int, slot: int) -> float | None:
        """Of a slot for a job, the lower the better; None where the style refuses it."""
        snapshot, style = self.snapshot, self.style
        if self.on[slot] and (style.rule == GAIN or style.min_gain > -1.0):
            kinds = tuple(sorted((*self.keys[slot], snapshot.kind[job])))
            used = snapshot.combos.of(snapshot.way[slot], kinds)[0]
            gain = used - self.used[slot]
            if gain < style.min_gain:
                return None
        else:
            gain = snapshot.smact[job]
        if style.rule == GAIN:
            return -gain
        if style.rule == LEVEL:
            return sum([self.left[one] * snapshot.smact[one] for one in self.on[slot]])
        return float(self.free[slot] - snapshot.need[job])

    def _scores(self, job: int, locked: dict[int, float]) -> list[tuple[float, int]]:
        """Of the slots that a job could have now (score, slot), the lower the better."""
        need, free = self.snapshot.need[job], self.free
        found: list[tuple[float, int]] = []
        for slot in range(len(free)):
            if free[slot] < need or not self._fits(job, slot):
                continue
            if slot in locked and not self._over_before(job, locked[slot]):
                continue
            score = self._score(job, slot)
            if score is not None:
                found.append((score, slot))
        return found

    def _one_node(self, job: int, ranked: list[tuple[float, int]]) -> tuple[int, ...] | None:
        """The best slots of one node; of several where no node is so large."""
        snapshot, want = self.snapshot, self.snapshot.gpus[job]
        if len(ranked) < want:
            return None
        found: dict[int, list[int]] = {}
        for _, slot in ranked:
            mine = found.setdefault(snapshot.node[slot], [])
            mine.append(slot)
            if len(mine) == want:
                return tuple(mine)
        if want > max(snapshot.nodes.values()):
            return tuple(slot for _, slot in ranked[:want])
        return None

    def _over_before(self, job: int, when: float) -> bool:
        """Whether a job would surely have ended by then."""
        return self.left[job] * SLOWEST <= when

    def _lock(self, job: int, locked: dict[int, float]) -> None:
        """Keep the slots free on which a job that waits can start soonest."""
        soon: list[tuple[float, int]] = []
        for slot, jobs in enumerate(self.on):
            if slot in locked:
                continue
            when = self._room_at(job, slot, jobs)
            soon.append((when, slot))
        soon.sort()
        slots = self._one_node(job, soon)
        if slots is None:
            return
        when = max(at for at, slot in soon if slot in slots)
        for slot in slots:
            locked[slot] = when

    def _room_at(self, job: int, slot: int, jobs: list[int]) -> float:
        """Seconds from now until a slot has the memory, at today's speeds."""
        snapshot, left, speed = self.snapshot, self.left, self.speed
        if not jobs:
            return 0.0
        ends = sorted([(left[one] / speed[one], one) for one in jobs])
        free = self.free[slot]
        if free < 0 or not snapshot.share[job] or snapshot.group[job] != snapshot.group[jobs[0]]:
            return ends[-1][0]
        if free >= snapshot.need[job]:
            return 0.0
        for when, one in ends:
            free += snapshot.need[one]
            if free >= snapshot.need[job]:
                return when
        return ends[-1][0]
