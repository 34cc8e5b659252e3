# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a simulation and the jobs that run on them: the truth behind what a policy sees.

A job's speed changes only when a neighbour comes or goes on one of its slots. `update`
returns the runs whose speed changed, so that the caller schedules their ends anew.
"""

from collections.abc import Sequence
from itertools import count

from slurm_coloc.core.place.gpu_slot import INF, GpuSlot, PlaceRequest, Resident
from slurm_coloc.core.place.interference import Interference
from slurm_coloc.core.place.speeds import BUSY, speeds_on
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.machine import Machine
from slurm_coloc.sim.places import Place, Run, places_of
from slurm_coloc.sim.power import dram_activity
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob


class Floor:
    """All places and runs."""

    def __init__(self, machine: Machine, setting: Setting, widest: int = 1) -> None:
        """``widest``: the most GPUs that a job asks for."""
        self._setting = setting
        self.places = places_of(machine, setting, widest)
        self.slots = [place.slot for place in self.places]
        self.runs: dict[int, Run] = {}
        self._holds: dict[tuple[int, int], bool] = {}
        # Never the same twice: a recovered job's former end must not end its new run.
        self._versions = count(1)
        # What was launched and appeared before this time is known; without telemetry: at once.
        self._polled_s = -INF if setting.conditions.telemetry else 1e300
        conditions = setting.conditions
        self._history_s = INF if setting.record else 0.0
        if conditions.telemetry and not setting.record:
            self._history_s = setting.monitor.window_s + 2 * setting.monitor.refresh_s

    def pool_holds(self, request: PlaceRequest) -> bool:
        """Whether shared GPUs could ever hold a job: so many of one node, if any node has so many,
        and large enough."""
        if self._setting.most_gpus is not None and request.gpus > self._setting.most_gpus:
            return False
        case = (request.gpus, request.need_mib or 0)
        known = self._holds.get(case)
        if known is None:
            nodes = list({slot.gpu: slot.node for slot in self.slots}.values())
            spread = request.gpus > max(nodes.count(node) for node in set(nodes))
            found: dict[int, set[int]] = {}
            for slot in self.slots:
                if slot.pool and slot.usable_mib >= case[1]:
                    found.setdefault(0 if spread else slot.node, set()).add(slot.gpu)
            known = any(len(gpus) >= request.gpus for gpus in found.values())
            self._holds[case] = known
        return known

    def check(self, jobs: Sequence[TraceJob]) -> None:
        """Raise UsageFault for jobs that can never start."""
        gpus = {(slot.node, slot.gpu) for slot in self.slots}
        nodes = [node for node, _ in gpus]
        largest = max(nodes.count(node) for node in set(nodes))
        cpus, host_mib = self._setting.node_cpus or INF, self._setting.node_host_mib or INF
        wrong = []
        for job in jobs:
            part = min(1.0, largest / job.gpus)  # of what it asks for, on one node
            if job.gpus > len(gpus):
                wrong.append(f"job {job.id} asks for {job.gpus} GPUs, there are {len(gpus)}")
            elif job.cpus * part > cpus:
                wrong.append(f"job {job.id} asks for {job.cpus} CPUs, a node has {cpus}")
            elif job.host_mib * part > host_mib:
                wrong.append(f"job {job.id} asks for {job.host_mib} MiB, a node has {host_mib}")
        if wrong:
            raise UsageFault(f"trace: {len(wrong)} jobs fit nowhere: {'; '.join(wrong[:5])}")

    # ---- coming and going ------------------------------------------------------------------

    def start(
        self, request: PlaceRequest, job: TraceJob, slots: tuple[GpuSlot, ...], now_s: float
    ) -> Run:
        """A job starts; ``update`` must follow."""
        residents = tuple(Resident(request) for _ in slots)
        limit_s = INF if job.limit_s is None else job.limit_s
        run = Run(job, request, slots, residents, now_s, job.run_s, now_s, limit_s)
        run.launched = not self._setting.launch_s
        self.runs[job.id] = run
        for slot, resident in zip(slots, residents, strict=True):
            slot.residents.append(resident)
            place = self.places[slot.index]
            place.runs.append(run)
            self.settle(place)
            if slot.host is not None:
                slot.host.take(request, 1)
            place.tally()
        return run

    def leave(self, run: Run, now_s: float) -> None:
        """A job is gone; ``update`` must follow."""
        del self.runs[run.job.id]
        for slot, resident in zip(run.slots, run.residents, strict=True):
            place = self.places[slot.index]
            slot.residents.remove(resident)
            place.runs.remove(run)
            if run.appeared_s <= now_s:
                place.bank.used_mib -= run.job.memory_mib
                self._note_bank(place, now_s)
            if slot.host is not None:
                slot.host.take(run.request, -1)
            self.settle(place)
            place.tally()

    def has_room(self, run: Run) -> bool:
        """Whether a run's memory fits on all its GPUs now."""
        return all(self.places[slot.index].has_room(run) for slot in run.slots)

    def alone(self, run: Run) -> bool:
        """Whether no other job has memory, or is about to, where a run is."""
        return all(
            other is run
            for slot in run.slots
            for place in self.places[slot.index].bank.places
            for other in place.runs
        )

    def appear(self, run: Run, now_s: float) -> None:
        """A run's memory is there."""
        run.appeared_s = now_s
        for slot in run.slots:
            place = self.places[slot.index]
            place.bank.used_mib += run.job.memory_mib
            self.settle(place)
            self._note_bank(place, now_s)

    def poll(self, when_s: float) -> None:
        """Telemetry polls all GPUs as they were at a time."""
        self._polled_s = when_s
        for place in self.places:
            place.slot.measured = place.history.at(when_s, self._setting.monitor)
            self.settle(place)

    def settle(self, place: Place) -> None:
        """A GPU has settled when all that was launched there has its memory, and telemetry, where
        it counts, has shown it."""
        if self._setting.settle:
            place.slot.settled = all(run.appeared_s <= self._polled_s for run in place.runs)

    # ---- speeds ----------------------------------------------------------------------------

    def update(self, slots: Sequence[GpuSlot], now_s: float) -> list[Run]:
        """Jobs came or went on these slots: bring all runs that it concerns up to date.
        Returns those whose speed changed."""
        touched = {slot.index: self.places[slot.index] for slot in slots}
        concerned = {run.job.id: run for place in touched.values() for run in place.runs}
        known: dict[int, dict[int, tuple[float, float]]] = {}
        changed = []
        for run in concerned.values():
            speed, planned = self._speed(run, known)
            if speed == run.speed and planned == run.planned and run.version:
                continue
            passed_s = now_s - run.since_s
            run.left_s = max(0.0, run.left_s - passed_s * run.speed)
            run.limit_left_s = max(0.0, run.limit_left_s - passed_s * run.planned)
            run.since_s, run.speed, run.planned = now_s, speed, planned
            run.version = next(self._versions)
            run.expect(now_s)
            changed.append(run)
            for slot in run.slots:  # its slowest GPU is the others' speed too
                touched[slot.index] = self.places[slot.index]
        for place in touched.values():
            self._note(place, now_s)
        return changed

    def _speed(
        self, run: Run, known: dict[int, dict[int, tuple[float, float]]]
    ) -> tuple[float, float]:
        """True and planned speed of a run: those on its slowest GPU."""
        speed = planned = INF
        for slot in run.slots:
            found = known.get(slot.index)
            if found is None:
                found = known[slot.index] = self._speeds(self.places[slot.index])
            here, plan = found[run.job.id]
            speed, planned = min(speed, here), min(planned, plan)
        return speed, planned if self._setting.stretch else 1.0

    def _speeds(self, place: Place) -> dict[int, tuple[float, float]]:
        setting, runs = self._setting, [run for run in place.runs if run.launched]
        requests = [run.request for run in runs]
        model = setting.interference
        true = speeds_on(place.slot, model, requests, [run.job.activity for run in runs])
        believed: Interference = setting.believed or model
        planned = true
        if believed is not model or any(
            run.request.activity is not run.job.activity for run in runs
        ):
            planned = speeds_on(
                place.slot, believed, requests, [request.activity or BUSY for request in requests]
            )
        found = {run.job.id: (0.0, 1.0) for run in place.runs}  # of those that do nothing yet
        found.update(
            zip([run.job.id for run in runs], zip(true, planned, strict=True), strict=True)
        )
        return found

    # ---- what telemetry and power meters show ----------------------------------------------

    def _note(self, place: Place, now_s: float) -> None:
        smact = smocc = drama = drawn = 0.0
        for run in place.runs:
            activity = run.job.activity
            smact += activity.smact * run.speed
            smocc += (activity.smocc or 0.0) * run.speed
            drama += (activity.drama or 0.0) * run.speed
            drawn += dram_activity(activity) * run.speed
        place.card.now(now_s, smact - place.smact, drawn - place.drama)
        place.smact, place.drama = smact, drawn
        if self._history_s:
            # A MIG instance shows the activity of its own SMs.
            part = place.slot.fraction
            shown = (min(1.0, smact / part), min(1.0, smocc / part), min(1.0, drama / part))
            place.history.note(now_s, (*shown, place.bank.used_mib), self._history_s)

    def _note_bank(self, place: Place, now_s: float) -> None:
        """Memory changed: all that share it show it."""
        if self._history_s:
            for one in place.bank.places:
                self._note(one, now_s)

    def joules(self, end_s: float) -> float:
        """Energy of all GPUs until then."""
        cards = {id(place.card): place.card for place in self.places}.values()
        for card in cards:
            card.now(end_s)
        return sum(card.joules for card in cards)
