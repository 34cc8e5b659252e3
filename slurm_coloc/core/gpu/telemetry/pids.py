# SPDX-License-Identifier: Apache-2.0
"""The processes of a run on its GPUs, by pid and start time, with the most that each took."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from slurm_coloc.core.gpu.peak import Use
from slurm_coloc.core.gpu.telemetry.reading import Held

MOST = 64
# The kernel counts start times in ticks since boot, so setting the clock moves them.
SAME_S = 2.0
AGO_S = 2.5  # seconds without a sample after which a process has ended
BRIEF_S = 3.0  # the longest that a process lives without being in a sample, where there is no gap
MOST_MISSED = 16  # processes of unknown jobs that are kept to see which of them ran together

Plain = dict[str, Any]


class Pid(NamedTuple):
    """``start_s``: of the process; ``from_s``, ``end_s`` (None: still there): on this GPU."""

    pid: int
    start_s: float
    uuid: str
    peak_mib: int
    from_s: float
    end_s: float | None
    seen_s: float

    def until(self, sampled_s: float) -> float | None:
        """Its end as of the sample at ``sampled_s``: a process that was not in it has ended."""
        return self.seen_s if self.end_s is None and self.seen_s < sampled_s else self.end_s

    def is_same(self, pid: int, start_s: float) -> bool:
        return self.pid == pid and abs(self.start_s - start_s) <= SAME_S


class Pids:
    """At most MOST processes; of those that have ended the smallest are dropped first.

    ``unseen``: the processes on its GPUs that came and went between two samples while other jobs
    were there, so that nobody knows whose they were: their ``count``, the ``peak_mib`` of the
    largest, ``could_mib``: by GPU, the most that this run held if all of them were its own, and
    ``instead``: how many came while it had no process of its own. Beside a process of its own that
    was in the samples before and after, a brief one is most likely another job's.
    """

    def __init__(self) -> None:
        self._pids: list[Pid] = []
        self.dropped = 0
        self.unseen: Plain = {}

    def __iter__(self) -> Iterator[Pid]:
        return iter(self._pids)

    def on(self, uuid: str) -> list[Pid]:
        return [one for one in self._pids if one.uuid == uuid]

    def see(self, at_s: float, uuid: str, held: Held) -> None:
        for place, one in enumerate(self._pids):
            if one.uuid == uuid and one.is_same(held.pid, held.start_s):
                peak_mib = max(one.peak_mib, held.mib)
                self._pids[place] = one._replace(peak_mib=peak_mib, end_s=None, seen_s=at_s)
                return
        self._take(Pid(held.pid, held.start_s, uuid, held.mib, at_s, None, at_s))

    def account(self, uuid: str, use: Use) -> bool:
        """Add the driver's accounting of a process; false where it is none of these. Its time on
        the GPU begins after the process does, so a reused number does not match."""
        for place, one in enumerate(self._pids):
            if one.uuid != uuid or one.pid != use.pid or use.start_s < one.start_s - SAME_S:
                continue
            if use.start_s > one.seen_s + SAME_S:
                continue  # a later process with the same number
            self._pids[place] = one._replace(
                peak_mib=max(one.peak_mib, use.peak_mib),
                from_s=min(one.from_s, use.start_s),
                end_s=one.end_s if use.end_s is None else use.end_s,
            )
            return True
        return False

    def add(self, uuid: str, use: Use) -> None:
        """Add a process that came and went between two samples and belonged to no other run."""
        end_s = use.start_s if use.end_s is None else use.end_s
        self._take(Pid(use.pid, use.start_s, uuid, use.peak_mib, use.start_s, end_s, end_s))

    def miss(self, uuid: str, use: Use) -> None:
        """Note a process of an unknown job on a GPU of this run."""
        before, end_s = self.unseen, use.start_s if use.end_s is None else use.end_s
        mine = [one for one in self.on(uuid) if one.from_s <= end_s]
        mine = [one for one in mine if one.end_s is None or one.end_s >= use.start_s]
        others = [
            mib
            for place, from_s, to_s, mib in before.get("recent", ())
            if place == uuid and from_s <= end_s and to_s >= use.start_s
        ]
        could_mib = sum(one.peak_mib for one in mine) + sum(others) + use.peak_mib
        beside = end_s - use.start_s <= BRIEF_S and any(
            one.from_s <= use.start_s and max(one.seen_s, one.end_s or 0.0) >= end_s for one in mine
        )
        known: dict[str, int] = before.get("could_mib", {})
        # An earlier release did not say for each what this one does.
        instead = int(before.get("instead") or before.get("count", 0) * ("recent" not in before))
        recent = [*before.get("recent", ()), [uuid, use.start_s, end_s, use.peak_mib]]
        self.unseen = {
            "count": int(before.get("count", 0)) + 1,
            "peak_mib": max(int(before.get("peak_mib", 0)), use.peak_mib),
            "could_mib": {**known, uuid: max(known.get(uuid, 0), could_mib)},
            "instead": instead + (not beside),
            "recent": recent[-MOST_MISSED:],
        }

    def close(self, at_s: float) -> bool:
        """End the processes that are in no sample any more; whether there were any."""
        ended = False
        for place, one in enumerate(self._pids):
            if one.end_s is None and at_s - one.seen_s > AGO_S:
                self._pids[place], ended = one._replace(end_s=one.seen_s), True
        return ended

    def _take(self, one: Pid) -> None:
        if len(self._pids) >= MOST:
            ended = [old for old in self._pids if old.end_s is not None]
            if not ended:
                self.dropped += 1
                return
            self._pids.remove(min(ended, key=lambda old: old.peak_mib))
            self.dropped += 1
        self._pids.append(one)

    def plain(self) -> list[Plain]:
        return [
            {
                name: round(value, 3) if isinstance(value, float) else value
                for name, value in one._asdict().items()
            }
            for one in self._pids
        ]

    @classmethod
    def of(cls, plain: list[Plain], unseen: Plain) -> "Pids":
        made = cls()
        for one in plain[:MOST]:
            end_s = one["end_s"]
            pid = Pid(
                pid=int(one["pid"]),
                start_s=float(one["start_s"]),
                uuid=str(one["uuid"]),
                peak_mib=int(one["peak_mib"]),
                from_s=float(one["from_s"]),
                end_s=None if end_s is None else float(end_s),
                seen_s=float(one["seen_s"]),
            )
            made._pids.append(pid)
        made.unseen = dict(unseen)
        return made
