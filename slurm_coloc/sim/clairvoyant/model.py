# SPDX-License-Identifier: Apache-2.0
"""The truth of a trace and a machine as plain lists, as a search needs it.

Jobs and seats are numbered from 0 here. Speeds of a set of jobs on one GPU are asked of the
interference model once and kept: a set is an integer, one bit a job.
"""

from collections.abc import Sequence
from random import Random

from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob

#: sets of jobs whose speeds are kept; a bound on memory (about 100 MiB)
KEPT = 200_000


class Model:
    """A trace on a machine under a setting.

    ``need[seat][job]``: MiB that the job takes there; a job that must be alone takes all.
    ``seats[job]``: where it can be at all. Raises UsageFault for a job that fits nowhere
    and for what is not searched: MIG, and nodes whose CPUs or memory can run short.
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
        #: jobs that a seat holds at once
        self.most = setting.conditions.jobs
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
        self._check(machine)
        #: of each set of jobs on one GPU: the speed of each
        self.kept: dict[int, dict[int, float]] = {}

    def _check(self, machine: Machine) -> None:
        setting = self._setting
        if setting.method == "mig" or any(device.part for device in machine.devices):
            raise UsageFault("clairvoyant: searches whole GPUs by mps or streams, not MIG")
        if setting.node_cpus or setting.node_host_mib:
            raise UsageFault("clairvoyant: CPUs and memory of nodes are not searched; leave them")
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

    def beside(self, job: int, most: int | None = None) -> int:
        """Beside how many jobs, over all its seats, a job may start: what seats hold, or less."""
        limit = (self.most - 1) * self.gpus[job]
        return limit if most is None else min(most, limit)

    def some_seats(self, job: int, rng: Random) -> tuple[int, ...]:
        """Seats that a job could have, drawn at random."""
        return tuple(sorted(rng.sample(rng.choice(self.nodes[job]), self.gpus[job])))

    def fits(self, job: int, seats: Sequence[int]) -> bool:
        """Whether each of these seats has room for a job."""
        return all(self.need[seat][job] <= self.room[seat] for seat in seats)

    def speeds(self, mates: Sequence[int], mask: int) -> dict[int, float]:
        """Speed of each of these jobs beside the others on a GPU."""
        found = self.kept.get(mask)
        if found is None:
            if len(self.kept) >= KEPT:
                self.kept.clear()
            found = self.kept[mask] = self._ask(sorted(mates))
        return found

    def _ask(self, mates: Sequence[int]) -> dict[int, float]:
        setting, jobs = self._setting, [self.jobs[number] for number in mates]
        if len(jobs) == 1:
            return {mates[0]: 1.0}
        several = len({job.user for job in jobs}) > 1
        streams = setting.method == "mps" and several and not setting.multi_user_mps
        method = "streams" if streams else setting.method
        speeds = setting.interference.speeds([job.activity for job in jobs], method)
        return dict(zip(mates, speeds, strict=True))
