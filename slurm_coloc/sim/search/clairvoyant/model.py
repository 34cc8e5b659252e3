# SPDX-License-Identifier: Apache-2.0
"""The truth of a trace and a machine, as a search of schedules needs it (planning/schedules)."""

from collections.abc import Sequence

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault
from slurm_coloc.planning.schedules.problem import Problem, by_node
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob


class Model(Problem):
    """A trace on a machine under a setting; all its jobs may be moved.

    Raises UsageFault for a job that fits nowhere and for what is not searched: MIG, and nodes
    whose CPUs or memory can run short.
    """

    def __init__(self, jobs: Sequence[TraceJob], machine: Machine, setting: Setting) -> None:
        self.jobs = list(jobs)
        self.run = [job.run_s for job in jobs]
        self.submit = [job.submit_s for job in jobs]
        self.gpus = [job.gpus for job in jobs]
        self.weight = [1.0] * len(jobs)
        self.movable = len(jobs)
        # To its neighbours a job is its activity and its user.
        kinds: dict[tuple[Activity, str], int] = {}
        self.kind = [kinds.setdefault((job.activity, job.user), len(kinds)) for job in jobs]
        self._kinds = list(kinds)
        self.room = [device.usable_mib for device in machine.devices]
        self._setting = setting
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
        self.slots = [
            [slot for slot, room in enumerate(self.room) if self.need[slot][number] <= room]
            for number in range(len(jobs))
        ]
        self._check(machine)
        node = [device.node for device in machine.devices]
        self.nodes = [
            by_node(node, slots, job.gpus) for job, slots in zip(jobs, self.slots, strict=True)
        ]
        self.alike = [0] * len(self.room)

    def _check(self, machine: Machine) -> None:
        setting = self._setting
        if setting.method == "mig" or any(device.part for device in machine.devices):
            raise UsageFault("clairvoyant: searches whole GPUs by mps or streams, not MIG")
        if setting.node_cpus or setting.node_host_mib:
            raise UsageFault("clairvoyant: CPUs and memory of nodes are not searched; leave them")
        for job, slots in zip(self.jobs, self.slots, strict=True):
            if job.gpus > len(slots):
                raise UsageFault(
                    f"job {job.id}: {job.gpus} GPUs with {job.memory_mib} MiB each: "
                    f"{len(slots)} of this machine would do"
                )

    def speeds(self, slot: int, kinds: Sequence[int]) -> Sequence[float]:
        """As the problem says; the same on all slots."""
        setting, found = self._setting, [self._kinds[kind] for kind in kinds]
        if len(found) == 1:
            return [1.0]
        several = len({user for _, user in found}) > 1
        streams = setting.method == "mps" and several and not setting.multi_user_mps
        method = "streams" if streams else setting.method
        return setting.interference.speeds([activity for activity, _ in found], method)
