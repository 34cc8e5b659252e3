# SPDX-License-Identifier: Apache-2.0
"""Jobs that hold more of a GPU than they were promised, as the nodes' agents tell it."""

import time
from dataclasses import replace
from typing import Annotated

import structlog
from pydantic import Field

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.gpu.overrun import Change, KnownOverrun, words
from slurm_coloc.flow.nodes.epilog import Message

log = structlog.get_logger()

KEPT_S = 600.0  # after its end: for a neighbour that ran out of memory meanwhile
MOST = 4096
Mib = Annotated[int, Field(ge=0, le=2**24)]
Time = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


Key = tuple[str, int, int, str, float]  # node, job, restart, GPU, since


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
    """What lasts, and what ended in the last KEPT_S."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._seen: dict[Key, KnownOverrun] = {}
        self._over: dict[Key, float] = {}  # when their ends were told, by the clock here

    def take(self, node: str, told: tuple[OverrunNow, ...]) -> None:
        """Those of a node's heartbeat. One that the node no longer names is over: its agent was
        started again, and begins anew."""
        now = time.time()
        named = set()
        for one in told:
            key = (node, one.job_id, one.restart, one.uuid, one.since_s)
            named.add(key)
            before = self._seen.get(key)
            self._seen[key] = KnownOverrun(node=node, **one.model_dump())
            if before is None or (before.until_s is None and one.until_s is not None):
                self._note(node, one, before is None)
        for key, seen in list(self._seen.items()):
            if key[0] == node and key not in named and seen.until_s is None:
                self._seen[key] = replace(seen, until_s=now)
            if self._seen[key].until_s is not None and key not in named:
                over_s = self._over.setdefault(key, now)
                if over_s < now - KEPT_S:
                    del self._seen[key], self._over[key]
        while len(self._seen) > MOST:
            oldest = next(iter(self._seen))
            del self._seen[oldest]
            self._over.pop(oldest, None)

    def _note(self, node: str, one: OverrunNow, is_new: bool) -> None:
        """Once in the job's events at its begin, once at its end."""
        run = next(
            (run for run in self._store.runs.of_job(one.job_id) if run.restart == one.restart), None
        )
        if run is None or run.outcome:
            return
        changes = []
        if is_new:
            changes.append(Change("begun", one.since_s, one.held_mib, one.promised_mib))
        if one.until_s is not None:
            changes.append(Change("over", one.since_s, one.held_mib, one.promised_mib))
        for change in changes:
            text = f"{words(change, one.uuid)} (node {node})"
            self._store.note(run.decision, one.job_id, "overrun", text)
        log.warning("overrun", jobid=one.job_id, node=node, held_mib=one.held_mib)

    def all(self) -> tuple[KnownOverrun, ...]:
        """In the order in which they were first told."""
        return tuple(self._seen.values())
