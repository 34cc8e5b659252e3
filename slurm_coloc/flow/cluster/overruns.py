# SPDX-License-Identifier: Apache-2.0
"""Jobs that hold more of a GPU than they were promised, as the nodes' agents tell it."""

from typing import Annotated

import structlog
from pydantic import Field

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.gpu.overrun import Change, words
from slurm_coloc.flow.nodes.epilog import Message

log = structlog.get_logger()

Mib = Annotated[int, Field(ge=0, le=2**24)]
Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


Key = tuple[int, int, str, float]  # job, restart, GPU, since


class OverrunNow(Message):
    """One overrun in a heartbeat. ``until_s`` None: it lasts."""

    job_id: Annotated[int, Field(ge=1, le=2**32)]
    restart: Annotated[int, Field(ge=0, le=2**16)]
    uuid: Annotated[str, Field(pattern=r"^[A-Za-z0-9/-]{1,96}$")]
    since_s: Time
    held_mib: Mib
    promised_mib: Mib
    until_s: Time | None = None


class Overruns:
    """Notes each overrun in its job's events: once at its begin, once at its end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[str, dict[Key, bool]] = {}  # by node; whether the end was noted, too

    def take(self, node: str, told: tuple[OverrunNow, ...]) -> None:
        """Those of a node's heartbeat, which names each for a while after its end. One that it no
        longer names is forgotten: an agent that was started again begins anew."""
        before = self._noted.pop(node, {})
        now: dict[Key, bool] = {}
        for one in told:
            key = (one.job_id, one.restart, one.uuid, one.since_s)
            ended = one.until_s is not None
            now[key] = ended or before.get(key, False)
            if key not in before or now[key] != before[key]:
                self._note(node, one, key not in before)
        if now:
            self._noted[node] = now

    def _note(self, node: str, one: OverrunNow, is_new: bool) -> None:
        runs = [run for run in self._store.runs.of_job(one.job_id) if run.restart == one.restart]
        if not runs or runs[-1].outcome:  # the newest: ids may have started again
            return
        run = runs[-1]
        changes = []
        if is_new:
            changes.append(Change("begun", one.since_s, one.held_mib, one.promised_mib))
        if one.until_s is not None:
            changes.append(Change("over", one.since_s, one.held_mib, one.promised_mib))
        for change in changes:
            text = f"{words(change, one.uuid)} (node {node})"
            self._store.note(run.decision, one.job_id, "overrun", text)
        log.warning("overrun", jobid=one.job_id, node=node, held_mib=one.held_mib)
