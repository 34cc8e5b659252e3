# SPDX-License-Identifier: Apache-2.0
"""A rollout: how a plan would go on from now, by what is expected of the jobs.

A plan is an order of the waiting jobs and a style of placing them. Played with list scheduling and
the model of interference it gives the time at which everything would be done. This is the hot loop
of planning ahead: plain lists of numbers, no objects.
"""

from dataclasses import dataclass

from slurm_coloc.sim.search.planning.combos import Kinds
from slurm_coloc.sim.search.planning.snapshot import PlanSnapshot

#: how a seat is chosen among those that admit a job
GAIN, LEVEL, FIT = range(3)
#: a neighbour slows a job down to about 1/2.1 under the reference model before the GPU is full
SLOWEST = 2.1


@dataclass(frozen=True, slots=True)
class Style:
    """How a plan places. ``rule``: GAIN, the seat whose throughput grows most; LEVEL, the one with
    the least work; FIT, the one whose memory is filled best. ``hold``: so many jobs that cannot
    start keep seats free for themselves. ``min_gain``: a busy seat takes a job only where its
    throughput grows by so much (ratio of a GPU's SM activity)."""

    rule: int = GAIN
    hold: int = 0
    min_gain: float = -9.0


@dataclass(slots=True)
class Played:
    """How a plan went. ``end_s``: when all is done; ``mean_s``: the mean end of a job; ``dry_s``:
    the mean end of a seat; ``late_s``: seconds by which jobs started after they were due.
    ``first``: what it starts now, on which seats; ``starts``: all that it starts, in its order."""

    end_s: float
    mean_s: float
    dry_s: float
    late_s: float
    first: list[tuple[int, tuple[int, ...]]]
    starts: list[tuple[int, tuple[int, ...]]]


class Rollout:
    """One play of one plan."""

    def __init__(self, scene: PlanSnapshot, order: list[int], style: Style) -> None:
        self.scene, self.style = scene, style
        self.queue = order
        self.free = scene.free[:]
        self.on = [list(jobs) for jobs in scene.on]
        self.left = scene.left[:]
        self.seats_of = scene.seats_of[:]
        self.speed = [1.0] * len(scene.left)
        kind = scene.kind
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
        scene = self.scene
        self.running.remove(job)
        kind = scene.kind[job]
        for seat in self.seats_of[job]:
            self.on[seat].remove(job)
            kinds = list(self.keys[seat])
            kinds.remove(kind)
            self.keys[seat] = tuple(kinds)
            if not self.on[seat]:
                self.free[seat] = scene.usable[seat]
            elif self.free[seat] >= 0:
                self.free[seat] += scene.need[job]
            self.dirty.add(seat)
            dry[seat] = self.now

    def _start(self, job: int, seats: tuple[int, ...]) -> None:
        scene = self.scene
        self.seats_of[job] = seats
        self.running.append(job)
        kind = scene.kind[job]
        for seat in seats:
            if not scene.share[job]:
                self.free[seat] = -1
            else:
                self.free[seat] -= scene.need[job]
            self.on[seat].append(job)
            self.keys[seat] = tuple(sorted((*self.keys[seat], kind)))
            self._look(seat)
            self.dirty.add(seat)
        if self.now > scene.due[job]:
            self.late += self.now - scene.due[job]

    def _look(self, seat: int) -> None:
        scene = self.scene
        self.used[seat], self.tables[seat] = scene.combos.of(
            scene.method[seat], scene.fraction[seat], self.keys[seat]
        )

    def _speeds(self) -> None:
        """New speeds of all whom a change concerns; a job is as fast as on its slowest seat."""
        kind, tables, seats_of, speed = self.scene.kind, self.tables, self.seats_of, self.speed
        for seat in self.dirty:
            self._look(seat)
        for seat in self.dirty:
            for job in self.on[seat]:
                mine = seats_of[job]
                if len(mine) == 1:
                    speed[job] = tables[seat][kind[job]]
                else:
                    speed[job] = min([tables[one][kind[job]] for one in mine])
        self.dirty = set()

    # ---- placing ---------------------------------------------------------------------------

    def _place(self) -> list[tuple[int, tuple[int, ...]]]:
        """Start what the plan starts at this moment."""
        scene, hold = self.scene, self.style.hold
        free, need = self.free, scene.need
        started: list[tuple[int, tuple[int, ...]]] = []
        waits: list[int] = []
        locked: dict[int, float] = {}
        top = max(free)
        for job in self.queue:
            seats: tuple[int, ...] | None = None
            if need[job] <= top:
                if scene.gpus[job] == 1:
                    seat = self._one(job, locked)
                    seats = (seat,) if seat >= 0 else None
                else:
                    seats = self._several(job, locked)
            if seats is not None:
                self._start(job, seats)
                started.append((job, seats))
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

    def _fits(self, job: int, seat: int) -> bool:
        """Whether the conditions let a job onto a seat that has the memory."""
        scene, jobs = self.scene, self.on[seat]
        if not jobs:
            return scene.pool[seat] if scene.share[job] else scene.for_whole[seat]
        if not scene.share[job] or scene.lone[job] or len(jobs) >= scene.most:
            return False
        if scene.group[job] != scene.group[jobs[0]]:
            return False
        if scene.budget is not None and (
            sum(scene.smact[one] for one in jobs) + scene.smact[job] > scene.budget + 1e-9
        ):
            return False
        if not scene.bounded:
            return True
        kinds = tuple(sorted((*self.keys[seat], scene.kind[job])))
        speeds = scene.combos.of(scene.method[seat], scene.fraction[seat], kinds)[1]
        return all(scene.bound[one] * speeds[scene.kind[one]] + 1e-9 >= 1.0 for one in (*jobs, job))

    def _score(self, job: int, seat: int) -> float | None:
        """Of a seat for a job, the lower the better; None where the style refuses it."""
        scene, style = self.scene, self.style
        if self.on[seat] and (style.rule == GAIN or style.min_gain > -1.0):
            kinds = tuple(sorted((*self.keys[seat], scene.kind[job])))
            used = scene.combos.of(scene.method[seat], scene.fraction[seat], kinds)[0]
            gain = used - self.used[seat]
            if gain < style.min_gain:
                return None
        else:
            gain = scene.smact[job]
        if style.rule == GAIN:
            return -gain
        if style.rule == LEVEL:
            return sum([self.left[one] * scene.smact[one] for one in self.on[seat]])
        return float(self.free[seat] - scene.need[job])

    def _one(self, job: int, locked: dict[int, float]) -> int:
        return min(self._scores(job, locked), default=(0.0, -1))[1]

    def _several(self, job: int, locked: dict[int, float]) -> tuple[int, ...] | None:
        return self._one_node(job, sorted(self._scores(job, locked)))

    def _scores(self, job: int, locked: dict[int, float]) -> list[tuple[float, int]]:
        """Of the seats that a job could have now (score, seat), the lower the better."""
        need, free = self.scene.need[job], self.free
        found: list[tuple[float, int]] = []
        for seat in range(len(free)):
            if free[seat] < need or not self._fits(job, seat):
                continue
            if seat in locked and not self._over_before(job, locked[seat]):
                continue
            score = self._score(job, seat)
            if score is not None:
                found.append((score, seat))
        return found

    def _one_node(self, job: int, ranked: list[tuple[float, int]]) -> tuple[int, ...] | None:
        """The best seats of one node; of several where no node is so large."""
        scene, want = self.scene, self.scene.gpus[job]
        if len(ranked) < want:
            return None
        found: dict[int, list[int]] = {}
        for _, seat in ranked:
            mine = found.setdefault(scene.node[seat], [])
            mine.append(seat)
            if len(mine) == want:
                return tuple(mine)
        if want > max(scene.nodes.values()):
            return tuple(seat for _, seat in ranked[:want])
        return None

    def _over_before(self, job: int, when: float) -> bool:
        """Whether a job would surely have ended by then."""
        return self.left[job] * SLOWEST <= when

    def _lock(self, job: int, locked: dict[int, float]) -> None:
        """Keep the seats free on which a job that waits can start soonest."""
        soon: list[tuple[float, int]] = []
        for seat, jobs in enumerate(self.on):
            if seat in locked:
                continue
            when = self._room_at(job, seat, jobs)
            soon.append((when, seat))
        soon.sort()
        seats = self._one_node(job, soon)
        if seats is None:
            return
        when = max(at for at, seat in soon if seat in seats)
        for seat in seats:
            locked[seat] = when

    def _room_at(self, job: int, seat: int, jobs: list[int]) -> float:
        """Seconds from now until a seat has the memory, at today's speeds."""
        scene, left, speed = self.scene, self.left, self.speed
        if not jobs:
            return 0.0
        ends = sorted([(left[one] / speed[one], one) for one in jobs])
        free = self.free[seat]
        if free < 0 or not scene.share[job] or scene.group[job] != scene.group[jobs[0]]:
            return ends[-1][0]
        if free >= scene.need[job]:
            return 0.0
        for when, one in ends:
            free += scene.need[one]
            if free >= scene.need[job]:
                return when
        return ends[-1][0]
