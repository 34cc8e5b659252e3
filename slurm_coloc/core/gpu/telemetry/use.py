# SPDX-License-Identifier: Apache-2.0
"""A run's use, added up from samples, and its record (version 1), from which it can be continued.

The record is a plain dictionary. Memory in MiB, times in seconds since the epoch, activities 0..1,
energy in J. Figures that are not available are null, and "why" has the reason.

The peak of a run on a GPU is the maximum of its samples (the sum of its processes) and of the
driver's accounting of each process: those that ran together are added, so it is never too small.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from slurm_coloc.core.gpu.peak import Use, peak_of
from slurm_coloc.core.gpu.telemetry.on_gpu import OnGpu, Plain
from slurm_coloc.core.gpu.telemetry.pids import Pids
from slurm_coloc.core.gpu.telemetry.reading import Reading
from slurm_coloc.core.gpu.telemetry.series import Series

VERSION = 1
MOST_EVENTS, MOST_NEIGHBOURS = 20, 32
REPEATED = ("driver", "idle")  # kinds of events without a bound
GAP_S = 3.0  # samples come each second; a longer time without one is a gap
LONG_S = 60.0  # a run of which this was watched is known by its own samples


class Met(NamedTuple):
    """A neighbour: another job that held memory on a GPU of this run while this run did."""

    restart: int | None
    uid: int | None
    overlap_s: float = 0.0


class RunUse:
    """One run of a job. ``began_s``: the start of its Prolog, which also distinguishes a job id
    that is used again; ``since_s``, ``until_s``: its first and last sample, or 0."""

    def __init__(self, job_id: int, restart: int, began_s: float) -> None:
        self.job_id, self.restart, self.began_s = job_id, restart, began_s
        self.since_s = self.until_s = self.gap_s = 0.0
        self.samples = 0
        self.gpus: dict[str, OnGpu] = {}
        self.pids = Pids()
        self.met: dict[int, Met] = {}
        self.events: list[Plain] = []
        self.left_out: dict[str, int] = {}
        self.last: Plain | None = None
        self.series: Series | None = None
        # DCGM's own job statistics, as adapters/dcgm/jobs read them
        self.dcgm: Plain | None = None
        self.sources: dict[str, str | None] = {}
        self.why: dict[str, str] = {}
        self.accounting = False

    def add(
        self,
        at_s: float,
        readings: list[Reading],
        energy_j: dict[str, float],
        others: dict[int, tuple[int, int]],
    ) -> float | None:
        """Add a sample of the GPUs that this run has. ``energy_j``: by UUID, since the last sample;
        ``others``: restart and uid of the runs on this node. Returns the run's SM activity, summed
        over its GPUs, None where it is not known of each of them. The series is of one GPU: the
        memory of the one with most, the mean activity."""
        past_s = at_s - (self.until_s or self.began_s)
        self.since_s = self.since_s or at_s
        if past_s > GAP_S:
            self.gap_s += past_s
        self.until_s, self.samples = at_s, self.samples + 1
        activities: list[float] = []
        most_mib = 0
        for reading in readings:
            gpu = self.gpus.setdefault(reading.uuid, OnGpu())
            smact = gpu.take(reading, self.job_id, energy_j.get(reading.uuid))
            activities += [smact] if smact is not None else []
            for one in reading.held:
                if one.job_id == self.job_id:
                    self.pids.see(at_s, reading.uuid, one)
            most_mib = max(most_mib, reading.mib_of(self.job_id))
        there = [one for one in readings if one.mib_of(self.job_id)]
        if there:
            neighbours = dict.fromkeys(job_id for one in there for job_id in one.jobs)
            neighbours.pop(self.job_id)
            self._meet(neighbours, others, min(past_s, GAP_S))
        # While it has held none yet, it may run out of memory at its first step.
        if there or (readings and not (self.last and self.last["held_mib"])):
            self._note_last(at_s, there or readings)
        if self.series is None:
            self.series = Series(at_s)
        mean = min(1.0, sum(activities) / len(activities)) if activities else None
        self.series.add(at_s, most_mib, mean)
        return sum(activities) if len(activities) == len(readings) else None

    def _note_last(self, at_s: float, there: list[Reading]) -> None:
        """Keep the state of the GPU that has the least memory left: what is promised is of one."""
        one = min(there, key=lambda each: each.free_mib)
        processes = Counter(each.job_id for each in one.held)
        others = ((mib, job_id) for job_id, mib in one.jobs.items() if job_id != self.job_id)
        largest = sorted(others, reverse=True)[:MOST_NEIGHBOURS]
        self.last = {
            "at_s": round(at_s, 3),
            "held_mib": one.mib_of(self.job_id),
            "gpu_free_mib": one.free_mib,
            "neighbours": [
                {"job_id": job_id, "held_mib": mib, "processes": processes[job_id]}
                for mib, job_id in sorted(largest, key=lambda each: each[1])
            ],
            "foreign_mib": one.foreign_mib,
        }

    def _meet(
        self, neighbours: Iterable[int], others: dict[int, tuple[int, int]], past_s: float
    ) -> None:
        for job_id in neighbours:
            if job_id not in self.met:
                if len(self.met) >= MOST_NEIGHBOURS:
                    self._leave_out("neighbours")
                    continue
                self.met[job_id] = Met(*others.get(job_id, (None, None)))
            met = self.met[job_id]
            self.met[job_id] = met._replace(overlap_s=met.overlap_s + max(0.0, past_s))

    def note(
        self, at_s: float, kind: str, text: str, most: int = MOST_EVENTS, **more: int | str
    ) -> None:
        """Keep an event: the last MOST_EVENTS, of this kind the last ``most``. ``more``: figures of
        it."""
        # The last ones tell how a run ended; what may come again and again goes first.
        alike = [at for at, one in enumerate(self.events) if one["kind"] == kind]
        again = (at for at, one in enumerate(self.events) if one["kind"] in REPEATED)
        if len(alike) >= most or len(self.events) >= MOST_EVENTS:
            del self.events[alike[0] if len(alike) >= most else next(again, 0)]
            self._leave_out("events")
        self.events.append({"at_s": round(at_s, 3), "kind": kind, "text": text[:200], **more})

    def note_again(self, at_s: float, kind: str, text: str) -> None:
        """Keep a repeated event once, with its last time."""
        for event in self.events:
            if (event["kind"], event["text"]) == (kind, text[:200]):
                event["at_s"] = round(at_s, 3)
                return
        self.note(at_s, kind, text)

    def _leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1

    def peak_on(self, uuid: str) -> int:
        """The peak in MiB, of the samples and the driver's accounting."""
        uses = [
            Use(one.pid, one.from_s, one.until(self.until_s), one.peak_mib)
            for one in self.pids.on(uuid)
        ]
        ends = [use.start_s if use.end_s is None else use.end_s for use in uses]
        accounted = peak_of([uses], 0.0, max([self.until_s, *ends]))
        sampled = self.gpus[uuid].peak_mib if uuid in self.gpus else 0
        return max(sampled, accounted.peak_mib if accounted else 0)

    @property
    def complete(self) -> bool:
        """Whether no memory of the run was missed: no process of an unknown job was on its GPUs
        that may have raised its peak, and there is either accounting, which remembers ended
        processes, or no gap."""
        return not self._doubtful() and (self.accounting or self.gap_s <= GAP_S)

    def _doubtful(self) -> bool:
        """Whether a process of an unknown job may have raised the peak. Not where all of them
        together could not; nor in a long run that had a process of its own in the samples before
        and after each of them."""
        unseen = self.pids.unseen
        if not unseen:
            return False
        could: dict[str, int] = unseen.get("could_mib", {})
        if could and all(mib <= self.peak_on(uuid) for uuid, mib in could.items()):
            return False
        return bool(unseen.get("instead", 1)) or self.until_s - self.since_s < LONG_S

    def record(self) -> Plain:
        """The run's record; see the top of this file."""
        left_out = {**self.left_out, **({"pids": self.pids.dropped} if self.pids.dropped else {})}
        return {
            "v": VERSION,
            "job_id": self.job_id,
            "restart": self.restart,
            "began_s": round(self.began_s, 3),
            "since_s": round(self.since_s or self.began_s, 3),
            "until_s": round(self.until_s or self.began_s, 3),
            "samples": self.samples,
            "gap_s": round(self.gap_s, 1),
            "complete": self.complete,
            "accounting": self.accounting,
            "sources": dict(self.sources),
            "why": {name: text[:160] for name, text in self.why.items()},
            "gpus": [
                {**gpu.plain(uuid), "peak_mib": self.peak_on(uuid)}
                for uuid, gpu in self.gpus.items()
            ],
            "pids": self.pids.plain(),
            "unseen": dict(self.pids.unseen),
            "last": self.last,
            "neighbours": [
                {"job_id": job_id, **one._asdict(), "overlap_s": round(one.overlap_s, 1)}
                for job_id, one in self.met.items()
            ],
            "events": list(self.events),
            "series": self.series.plain() if self.series else None,
            **({"dcgm": self.dcgm} if self.dcgm else {}),
            **({"left_out": left_out} if left_out else {}),
        }


def resume(plain: Plain) -> RunUse:
    """The run of a record, to be continued; raises KeyError, TypeError or ValueError where the
    record is not of version 1."""
    if plain["v"] != VERSION:
        raise ValueError("version")
    made = RunUse(int(plain["job_id"]), int(plain["restart"]), float(plain["began_s"]))
    made.samples = int(plain["samples"])
    if made.samples:
        made.since_s, made.until_s = float(plain["since_s"]), float(plain["until_s"])
    made.gap_s, made.accounting = float(plain["gap_s"]), plain["accounting"] is True
    made.sources, made.why = dict(plain["sources"]), dict(plain["why"])
    made.gpus = {str(one["uuid"]): OnGpu.of(one) for one in plain["gpus"]}
    made.pids = Pids.of(plain["pids"], plain["unseen"])
    made.met = {
        int(one["job_id"]): Met(one["restart"], one["uid"], float(one["overlap_s"]))
        for one in plain["neighbours"]
    }
    made.events, made.last = list(plain["events"]), plain["last"]
    made.left_out = dict(plain.get("left_out", {}))
    made.pids.dropped = int(made.left_out.pop("pids", 0))
    made.series = Series.of(plain["series"]) if plain["series"] else None
    made.dcgm = plain.get("dcgm")
    return made
