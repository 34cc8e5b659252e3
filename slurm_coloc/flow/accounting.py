# SPDX-License-Identifier: Apache-2.0
"""The driver's accounting beside the samples: exact peaks, and processes that no sample met."""

from typing import Any

import structlog

from slurm_coloc.adapters.nvml import Nvml
from slurm_coloc.core.peak import SLACK_S, Use
from slurm_coloc.core.telemetry.use import RunUse
from slurm_coloc.errors import GpuError

log = structlog.get_logger()


class Accounting:
    """Asks for the processes of the runs, and for those that are new in the driver's list."""

    def __init__(self, lib: Nvml) -> None:
        self._lib = lib
        self._judged: dict[str, set[int]] = {}
        self._told = ""

    def see(self, uuid: str, pid: int) -> None:
        """A process that was in a sample of this GPU: its job, if any, is known."""
        self._judged.setdefault(uuid, set()).add(pid)

    def know(self, record: dict[str, Any]) -> None:
        """The processes of a record that an earlier agent wrote."""
        for one in record["pids"]:
            if isinstance(one.get("pid"), int):
                self.see(str(one.get("uuid", "")), one["pid"])

    def look(self, uuid: str, runs: list[RunUse], *, others: bool) -> None:
        """Give the runs of a GPU what its accounting tells. ``others``: processes that belong to
        none of these runs are there now."""
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
            if err.message != self._told:
                self._told = err.message
                log.warning("accounting", gpu=uuid, error=err.message)
            return
        for run in runs:
            run.accounting = True
        for use in found:
            self._judge(uuid, use, runs, others=others)

    def _judge(self, uuid: str, use: Use, runs: list[RunUse], *, others: bool) -> None:
        judged = self._judged[uuid]
        if any(run.pids.account(uuid, use) for run in runs):
            judged.add(use.pid)
            return
        if use.pid in judged or use.end_s is None:
            return  # another's, or it will be in the next sample
        judged.add(use.pid)
        met = [run for run in runs if use.end_s >= run.began_s - SLACK_S]
        if len(met) == 1 and len(runs) == 1 and not others:
            # it came and went between two samples, with nobody else on this GPU
            if use.start_s >= met[0].began_s - SLACK_S:
                met[0].pids.add(uuid, use)
            return
        for run in met:
            if use.start_s >= run.began_s - SLACK_S:
                run.pids.miss(use)
