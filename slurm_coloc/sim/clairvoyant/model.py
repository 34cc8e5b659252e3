# SPDX-License-Identifier: Apache-2.0
"""The truth of a trace and a machine as plain lists, as a search needs it.

Jobs and seats are numbered from 0 here. Speeds of a set of jobs on a kind of seat are asked of the
interference model once and kept: a set is an integer, one bit a job.
"""

from collections.abc import Sequence
from random import Random

from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob

#: sets of jobs whose speeds are kept, a kind of seat; a bound on memory (about 100 MiB)
KEPT = 200_000


class Model:
    """A trace on a machine under a setting.

    ``need[seat][job]``: MiB that the job takes there; a job that must be alone takes all.
    ``seats[job]``: where it can be at all. Raises UsageFault for a job that fits nowhere.
    """

    def __init__(self, jobs: Sequence[TraceJob], machine: Machine, setting: Setting) -> None:
        self.jobs = list(jobs)
        self.run = [job.run_s for job in jobs]
        self.submit = [job.submit_s for job in jobs]
        self.gpus = [job.gpus for job in jobs]
        self.bit = [1 << number for number in range(len(jobs))]
        self.room = [device.usable_mib for device in machine.devices]
        self.node = [device.node for device in machine.devices]
        self._setting = setting
        largest = max(self.room)
        self.alone = [not job.coloc or job.memory_mib > largest for job in jobs]
        self.need = [
            [
                room if alone else max(1, job.memory_mib)
                for job, alone in zip(jobs, self.alone, strict=True)
            ]
            for room in self.room
        ]
        self.seats = [
            [seat for seat, room in enumerate(self.room) if self.need[seat][number] <= room]
            for number in range(len(jobs))
        ]
        self._check()
        kinds = {device.fraction: {} for device in machine.devices}  # type: ignore[var-annotated]
        #: of each seat: set of jobs -> speed of each; shared by seats of one kind
        self.kept: list[dict[int, dict[int, float]]] = [
            kinds[device.fraction] for device in machine.devices
        ]
        self._fraction = [device.fraction for device in machine.devices]

    def _check(self) -> None:
        for job, seats in zip(self.jobs, self.seats, strict=True):
            if job.gpus > len(seats):
                raise UsageFault(
                    f"job {job.id}: {job.gpus} GPUs with {job.memory_mib} MiB each: "
                    f"{len(seats)} of this machine would do"
                )

        # A job of several GPUs gets them on one node where one has so many (core/queueing.py).
        self.nodes: list[list[list[int]]] = []
        for job, seats in zip(self.jobs, self.seats, strict=True):
            by_node: dict[int, list[int]] = {}
            for seat in seats:
                by_node.setdefault(self.node[seat], []).append(seat)
            whole = [mine for mine in by_node.values() if len(mine) >= job.gpus]
            self.nodes.append(whole or [seats])

    def some_seats(self, job: int, rng: Random) -> tuple[int, ...]:
        """Seats that a job could have, drawn at random."""
        return tuple(sorted(rng.sample(rng.choice(self.nodes[job]), self.gpus[job])))

    def fits(self, job: int, seats: Sequence[int]) -> bool:
        """Whether each of these seats has room for a job."""
        return all(self.need[seat][job] <= self.room[seat] for seat in seats)

    def speeds(self, seat: int, mates: Sequence[int], mask: int) -> dict[int, float]:
        """Speed of each of these jobs beside the others on a seat."""
        table = self.kept[seat]
        found = table.get(mask)
        if found is None:
            if len(table) >= KEPT:
                table.clear()
            found = table[mask] = self._ask(self._fraction[seat], sorted(mates))
        return found

    def _ask(self, fraction: float, mates: Sequence[int]) -> dict[int, float]:
        setting, jobs = self._setting, [self.jobs[number] for number in mates]
        speeds = [1.0] * len(jobs)
        if len(jobs) > 1:
            several = len({job.user for job in jobs}) > 1
            streams = setting.method == "mps" and several and not setting.multi_user_mps
            method = "streams" if streams else setting.method
            speeds = setting.interference.speeds([job.activity for job in jobs], method)
        if fraction < 1.0:
            model = setting.interference
            speeds = [
                speed * model.slice_speed(job.activity, fraction)
                for speed, job in zip(speeds, jobs, strict=True)
            ]
        return dict(zip(mates, speeds, strict=True))
