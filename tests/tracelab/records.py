# SPDX-License-Identifier: Apache-2.0
"""What a lab's Slurm wrote of its jobs, as the outcome of a trace."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from slurm_coloc.sim.outcome import Outcome, Record
from tests.tracelab.scale import Scale
from tests.tracelab.workload import Submission

_LINE = re.compile(
    r"^JobId=(?P<job>\d+) .*?\bJobState=(?P<state>\w+) .*?"
    r"\bStartTime=(?P<start>\S+) EndTime=(?P<end>\S+)"
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job, by jobcomp/filetxt: whole seconds since the epoch."""

    job_id: int
    state: str
    start_s: float
    end_s: float

    @property
    def completed(self) -> bool:
        """Whether it came to its end."""
        return self.state == "COMPLETED"


def runs(text: str) -> list[Run]:
    """The runs in a log of jobcomp/filetxt; a job that never started has none, and a run that is
    told twice (FAILED, then REQUEUED) counts once."""
    found: dict[tuple[int, str], Run] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or "Unknown" in (match["start"], match["end"]):
            continue
        run = Run(int(match["job"]), match["state"], _when(match["start"]), _when(match["end"]))
        found.setdefault((run.job_id, match["start"]), run)
    return sorted(found.values(), key=lambda run: (run.start_s, run.job_id))


def _when(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()  # Slurm writes local time


@dataclass(frozen=True, slots=True)
class Played:
    """A trace that was run in a lab. ``began_s``: when the trace began (epoch); ``ids``: job of the
    trace -> Slurm's; ``ooms``: job of the trace -> how often its log tells an out-of-memory.
    ``joules``: what the emulated GPUs drew in the lab's seconds."""

    began_s: float
    ids: Mapping[int, int]
    runs: Sequence[Run]
    ooms: Mapping[int, int]
    joules: float

    def outcome(self, jobs: Iterable[Submission], scale: Scale) -> Outcome:
        """In seconds of the trace. A job that did not complete has no end."""
        records = [self._record(one, scale) for one in jobs]
        timeouts = sum(record.timed_out for record in records)
        ooms = sum(record.oom for record in records)
        return Outcome(records, ooms, timeouts, 0, scale.of_trace(self.joules))

    def _record(self, one: Submission, scale: Scale) -> Record:
        record = Record(one.job, oom=self.ooms.get(one.job.id, 0))
        mine = [run for run in self.runs if run.job_id == self.ids.get(one.job.id)]
        if not mine:
            return record
        last = mine[-1]
        record.tries = len(mine)
        record.start_s = scale.of_trace(mine[0].start_s - self.began_s)
        record.ran_s = scale.of_trace(sum(run.end_s - run.start_s for run in mine))
        record.last_s = scale.of_trace(last.end_s - last.start_s)
        record.timed_out = last.state == "TIMEOUT"
        if last.completed:
            record.end_s = scale.of_trace(last.end_s - self.began_s)
        return record


def recovered(outcome: Outcome) -> int:
    """Jobs that ran out of memory and came to their end all the same."""
    return sum(1 for one in outcome.records if one.oom and one.end_s is not None)


def lost(outcome: Outcome) -> int:
    """Jobs that did not come to their end."""
    return sum(1 for one in outcome.records if one.end_s is None)
