# SPDX-License-Identifier: Apache-2.0
"""The processes of a node, asked for every second: what was found is kept while a process lives,
and new processes are checked for profilers."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_coloc.adapters import procs
from slurm_coloc.adapters.procs import Stat
from slurm_coloc.core.gpu.telemetry import whose

ASK_AGAIN_S = 10.0  # a process of no job: a login shell is adopted by a job after it began
#: programs that need the GPU's profiling counters for themselves
PROFILERS = frozenset({"ncu", "nv-nsight-cu-cl", "nsys", "nvprof"})
ASKED = b"COLOC_PROFILING=1"


@dataclass(slots=True)
class Whose:
    """What is known of one process. ``job_id`` None: of no job that is known."""

    started: int
    start_s: float
    job_id: int | None
    system: bool
    asked_s: float
    seen: int


class Procs:
    """The processes of this node. ``stepd_uids``: who slurmstepd runs as."""

    def __init__(self, stepd_uids: Iterable[int]) -> None:
        self._stepd_uids = frozenset(stepd_uids)
        self._known: dict[int, Whose] = {}
        self._round = 0
        self._hertz = os.sysconf("SC_CLK_TCK")
        self._pids: set[str] = set()
        self._fresh: set[str] = set()
        self._stepds: set[int] = set()
        self._profilers: dict[int, Stat] = {}

    def find(self, pid: int, uids: Mapping[int, int], now_s: float) -> Whose | None:
        """The process of this pid now; None where there is none. ``uids``: the owner of each job
        on this node, as root wrote it down; ``now_s``: monotonic."""
        stat = procs.stat_of(pid)
        known = self._known.get(pid)
        if stat is not None and known is not None and known.started == stat.started:
            known.seen = self._round
            if known.job_id is not None or now_s - known.asked_s < ASK_AGAIN_S:
                return known
        found = procs.find(pid, uids.get, self._stepd_uids) if stat is not None else None
        if found is None:
            self._known.pop(pid, None)
            return None
        began_s = self.start_s(found.started)
        system = found.job_id is None and procs.is_system(found)
        made = Whose(found.started, began_s, found.job_id, system, now_s, self._round)
        self._known[pid] = made
        return made

    def end_round(self) -> None:
        """Forget those that were not asked for since the last round but one."""
        self._round += 1
        old = self._round - 2
        for pid in [pid for pid, one in self._known.items() if one.seen < old]:
            del self._known[pid]

    def start_s(self, ticks: int) -> float:
        """A start time as seconds since the epoch."""
        boot_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        return boot_s + ticks / self._hertz

    def profiled(self, uids: Mapping[int, int], now_s: float) -> int | None:
        """A job on this node whose program is a profiler, or that was started with
        COLOC_PROFILING=1; None where there is none. Each call checks what is new."""
        try:
            entries = os.listdir(procs.PROC)  # noqa: PTH208
        except OSError:
            return None
        names = {name for name in entries if name[0] in "123456789"}
        new = names - self._pids
        # Looked at a second time: between fork and exec a program has its parent's name.
        for name in (new | self._fresh) & names:
            self._judge(int(name))
        self._pids, self._fresh = names, new
        self._stepds = {pid for pid in self._stepds if str(pid) in names}
        for pid, stat in list(self._profilers.items()):
            found = self.find(pid, uids, now_s) if str(pid) in names else None
            if found is None or found.started != stat.started:
                del self._profilers[pid]
            elif found.job_id in uids:
                return found.job_id
        return None

    def _judge(self, pid: int) -> None:
        stat = procs.stat_of(pid)
        if stat is None:
            return
        if stat.name == whose.STEPD:
            self._stepds.add(pid)
        elif stat.name in PROFILERS or (
            stat.parent in self._stepds and ASKED in procs.read(pid, "environ").split(b"\0")
        ):
            self._profilers[pid] = stat
