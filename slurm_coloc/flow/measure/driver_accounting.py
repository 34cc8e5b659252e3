# SPDX-License-Identifier: Apache-2.0
"""The driver's accounting beside the samples: exact peaks, and processes between two samples."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.core.gpu.peak import SLACK_S, Use
from slurm_coloc.core.gpu.telemetry.use import RunUse
from slurm_coloc.errors import GpuError

log = structlog.get_logger()

# A process is judged within seconds of its end: it was not that of a run that left before.
GONE_S = 120.0


class Accounting:
    """Asks for the processes of the runs, and for those that are new in the driver's list.

    ``ended``: the records on this node, also of runs that began and ended between two samples and
    were never met here."""

    def __init__(self, lib: Nvml, ended: Callable[[], Iterable[dict[str, Any]]] = tuple) -> None:
        self._lib = lib
        self._ended = ended
        self._records: list[dict[str, Any]] | None = None  # of this poll, once they were needed
        self._met_s = 0.0
        self._judged: dict[str, set[int]] = {}
        self._there: dict[str, set[tuple[int, int]]] = {}
        self._gone: dict[str, dict[tuple[int, int], float]] = {}  # when each was first missed
        self._logged = ""

    def meet(
        self, uuid: str, runs: list[RunUse], unknown: Iterable[RunUse] = (), at_s: float = 0.0
    ) -> None:
        """Which runs are on this GPU, at every sample: a process that came and went between two
        samples may belong to a run that has left since. ``unknown``: runs that may be on any GPU,
        since their Prolog has not told yet. ``at_s``: when the runs were looked for, 0 for now."""
        now_s = time.time()
        self._met_s = at_s or now_s
        here = {(run.job_id, run.restart) for run in (*runs, *unknown)}
        gone = {key: at_s for key, at_s in self._gone.get(uuid, {}).items() if key not in here}
        gone |= dict.fromkeys(self._there.get(uuid, set()) - here, now_s)
        self._gone[uuid] = {key: at_s for key, at_s in gone.items() if at_s > now_s - GONE_S}
        self._there[uuid] = here

    def see(self, uuid: str, pid: int) -> None:
        """A process that was in a sample of this GPU: its job, if any, is known."""
        self._judged.setdefault(uuid, set()).add(pid)

    def know(self, record: dict[str, Any]) -> None:
        """A record that an earlier agent wrote: its processes, and where its run was."""
        for gpu in record["gpus"]:
            key = (int(record["job_id"]), int(record["restart"]))
            self._there.setdefault(str(gpu.get("uuid", "")), set()).add(key)
        for one in record["pids"]:
            if isinstance(one.get("pid"), int):
                self.see(str(one.get("uuid", "")), one["pid"])

    def poll(self, uuid: str, runs: list[RunUse], *, others: bool) -> None:
        """Give the runs of a GPU what its accounting has of them. ``others``: whether processes
        that belong to none of these runs are there now."""
        if not runs:
            self._judged.pop(uuid, None)
            return
        try:
            pids = set(self._lib.accounted_pids(uuid))
            judged = self._judged.setdefault(uuid, set())
            judged &= pids
            ours = {one.pid for run in runs for one in run.pids.on(uuid)}
            found = self._lib.accounted(uuid, (pids - judged) | (ours & pids))
        except GpuError as err:
            for run in runs:
                run.accounting = False
                run.why["accounting"] = err.message
            if err.message != self._logged:
                self._logged = err.message
                log.warning("accounting", gpu=uuid, error=err.message)
            return
        for run in runs:
            run.accounting = True
        self._records = None
        for use in found:
            self._judge(uuid, use, runs, others=others)

    def _judge(self, uuid: str, use: Use, runs: list[RunUse], *, others: bool) -> None:
        judged = self._judged[uuid]
        if any(run.pids.account(uuid, use) for run in runs):
            judged.add(use.pid)
            return
        if use.pid in judged or use.end_s is None or use.start_s > self._met_s:
            return  # another's, or it will be in the next sample, or its run was not met yet
        judged.add(use.pid)
        met = [run for run in runs if use.end_s >= run.began_s - SLACK_S]
        left = any(at_s >= use.start_s for at_s in self._gone.get(uuid, {}).values())
        alone = len(met) == 1 and len(runs) == 1 and not others and not left
        if alone and not self._was_another(uuid, use, met[0]):
            # it came and went between two samples, with nobody else on this GPU
            if use.start_s >= met[0].began_s - SLACK_S:
                met[0].pids.add(uuid, use)
            return
        for run in met:
            if use.start_s >= run.began_s - SLACK_S:
                run.pids.miss(uuid, use)

    def _was_another(self, uuid: str, use: Use, mine: RunUse) -> bool:
        """Whether another run, which has ended, may have been on this GPU then."""
        if self._records is None:
            self._records = list(self._ended())
        for record in self._records:
            if (record["job_id"], record["restart"]) == (mine.job_id, mine.restart):
                continue
            there = not record["gpus"] or any(gpu.get("uuid") == uuid for gpu in record["gpus"])
            if there and record["began_s"] - SLACK_S <= use.start_s <= record["until_s"] + SLACK_S:
                return True
        return False
