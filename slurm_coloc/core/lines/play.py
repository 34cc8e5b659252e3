# SPDX-License-Identifier: Apache-2.0
"""The schedule that a plan gives: from event to event, and only from where the plan changed.

The hot loop of the search. While it plays it leaves a trail of moments; after a change to the plan
the last moment before the change had any effect is found, and the rest alone is played again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slurm_coloc.core.lines.plan import Plan

INF = float("inf")
#: events between two moments of a trail: more make a trail cheaper and a return longer
STRIDE = 6


@dataclass(slots=True)
class Moment:
    """The world on some seats between two events.

    Per seat ``position``: jobs of its line that have started; ``mask`` and ``mates``: those on it
    now; ``free``: MiB; ``wake``: when the next one is submitted, where that is what it waits for;
    ``last``: latest end so far. Per running job ``ends``: when it ends at the present ``pace``.
    ``total``: sum of all ends so far, by the jobs' weights.
    """

    now: float
    position: dict[int, int]
    mask: dict[int, int]
    mates: dict[int, list[int]]
    free: dict[int, int]
    last: dict[int, float]
    wake: dict[int, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    pace: dict[int, float] = field(default_factory=dict)
    total: float = 0.0

    def copy(self) -> "Moment":
        """One that can be played on while this one stays."""
        return Moment(
            self.now,
            self.position.copy(),
            self.mask.copy(),
            {seat: jobs.copy() for seat, jobs in self.mates.items()},
            self.free.copy(),
            self.last.copy(),
            self.wake.copy(),
            self.ends.copy(),
            self.pace.copy(),
            self.total,
        )


@dataclass(slots=True)
class Played:
    """Seats that no job ties to others, and their schedule. ``last``: per seat, when its last job
    ends. ``total``: sum of the ends of their jobs, by their weights."""

    seats: tuple[int, ...]
    last: Mapping[int, float]
    total: float
    trail: list[Moment]


def first_moment(plan: Plan, seats: Sequence[int]) -> Moment:
    """Before anything was submitted."""
    room = plan.problem.room
    return Moment(
        -1.0,
        dict.fromkeys(seats, 0),
        dict.fromkeys(seats, 0),
        {seat: [] for seat in seats},
        {seat: room[seat] for seat in seats},
        dict.fromkeys(seats, 0.0),
        dict.fromkeys(seats, 0.0),
    )


def again(plan: Plan, before: Played, changed: Mapping[int, int]) -> Played:
    """The schedule after a change: ``changed`` tells of each seat the first index in its line that
    is not what it was."""
    trail = before.trail
    low, high = 0, len(trail) - 1
    while low < high:
        middle = (low + high + 1) // 2
        position = trail[middle].position
        # At its head's index a line is what decides next, so that must be before the change.
        if all(position[seat] < index for seat, index in changed.items()):
            low = middle
        else:
            high = middle - 1
    return play(plan, before.seats, trail[: low + 1])


def play(
    plan: Plan,
    seats: tuple[int, ...],
    trail: list[Moment] | None = None,
    times: tuple[list[float], list[float]] | None = None,
) -> Played:
    """Play the lines of seats that are tied to no other, from the end of a trail.

    ``times``: lists of each job's start and end, to be filled; asks for a whole play.
    """
    # One long function with local names: it runs a hundred thousand times.
    problem, spots, lines = plan.problem, plan.spots, plan.lines
    run, submit, bit, weight = problem.run, problem.submit, problem.bit, problem.weight
    kept, needs, ruled = problem.kept, problem.need, problem.ruled
    if trail is None:
        trail = [first_moment(plan, seats)]
    state = trail[-1].copy()
    now, total = state.now, state.total
    position, mask, mates, free = state.position, state.mask, state.mates, state.free
    last, wake, ends, pace = state.last, state.wake, state.ends, state.pace
    events = 0
    while wake or ends:
        now = min(wake.values()) if wake else INF
        look: list[int] = []
        if ends:
            first = min(ends.values())
            if first <= now:
                now = first
                for job in [job for job, end in ends.items() if end <= now]:
                    del ends[job]
                    for seat in spots[job].seats:
                        mates[seat].remove(job)
                        mask[seat] ^= bit[job]
                        free[seat] += needs[seat][job]
                        last[seat] = now
                        look.append(seat)
                    total += now * weight[job]
                    if times is not None:
                        times[1][job] = now
        if wake:
            for seat in [seat for seat, when in wake.items() if when <= now]:
                del wake[seat]
                look.append(seat)
        changed = set(look)
        while look:
            seat = look.pop()
            line = lines[seat]
            while position[seat] < len(line):
                job = line[position[seat]]
                if submit[job] > now:
                    wake[seat] = submit[job]
                    break
                spot = spots[job]
                where = spot.seats
                if len(where) > 1:
                    if not _ready(plan, job, state):
                        break
                elif (
                    needs[seat][job] > free[seat]
                    or len(mates[seat]) > spot.beside
                    or (ruled and not problem.may(job, seat, mates[seat]))
                ):
                    break
                for one in where:
                    free[one] -= needs[one][job]
                    mates[one].append(job)
                    mask[one] |= bit[job]
                    position[one] += 1
                    if one != seat:
                        look.append(one)
                        changed.add(one)
                        wake.pop(one, None)
                pace[job] = 1.0
                ends[job] = now + run[job]
                if times is not None:
                    times[0][job] = now
        for seat in changed:
            here = mates[seat]
            if not here:
                continue
            speeds = kept[seat].get(mask[seat]) or problem.speeds(seat, here, mask[seat])
            for job in here:
                speed = speeds[job]
                where = spots[job].seats
                if len(where) > 1:
                    for one in where:
                        other = problem.speeds(one, mates[one], mask[one])[job]
                        if other < speed:
                            speed = other
                old = pace[job]
                if speed != old:
                    ends[job] = now + (ends[job] - now) * old / speed
                    pace[job] = speed
        events += 1
        if events % STRIDE == 0:
            state.now, state.total = now, total
            trail.append(state.copy())
    if any(position[seat] < len(lines[seat]) for seat in seats):
        last = dict.fromkeys(seats, INF)  # somebody never starts, so this is no schedule
    return Played(seats, last, total, trail)


def _ready(plan: Plan, job: int, state: Moment) -> bool:
    """Whether a job of several GPUs can start: it is next on all of them, and fits."""
    spot, problem = plan.spots[job], plan.problem
    beside = spot.beside
    for seat in spot.seats:
        line, next_up = plan.lines[seat], state.position[seat]
        if next_up >= len(line) or line[next_up] != job:
            return False
        if problem.need[seat][job] > state.free[seat]:
            return False
        if len(state.mates[seat]) >= problem.most:
            return False
        if problem.ruled and not problem.may(job, seat, state.mates[seat]):
            return False
        beside -= len(state.mates[seat])
    return beside >= 0
