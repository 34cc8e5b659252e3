# SPDX-License-Identifier: Apache-2.0
"""Stage watch, slowdown: closes the GPUs of a job that is slowed down beyond its limit to
newcomers, until some neighbours have left, and notes that, also where nothing can be done."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from slurm_coloc.core.records.runs import Key, PresentRun
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.time.neighbours import Pressed

log = structlog.get_logger()

# Measurements vary: a job is left alone up to so far above its limit (a ratio).
SLACK = 0.02
STEERED = "its GPU is closed to newcomers until some have left"
BY_NODE = "its GPU counts as full in Slurm's gate by node until some have left"
NATIVE = "Slurm chooses the GPUs here, so nothing keeps others away"
AGAIN = "within its slowdown limit again: its GPU is open to others again"


@dataclass(frozen=True, slots=True)
class Closed:
    """GPUs closed for one run, and its neighbours then."""

    uuids: frozenset[str]
    others: frozenset[int]


class Protector:
    """Keeps --coloc-max-slowdown of running jobs."""

    def __init__(self, context: Context) -> None:
        self._store, config = context.store, context.config
        self._closed: dict[Key, Closed] = {}
        self._means = STEERED
        if config.placement.mode == "native":
            self._means = BY_NODE if config.placement.node_gate else NATIVE

    @property
    def closed(self) -> frozenset[str]:
        """UUIDs of GPUs that are to take no further job."""
        return frozenset(uuid for one in self._closed.values() for uuid in one.uuids)

    def update(self, runs: list[PresentRun], pressed: Mapping[Key, Pressed]) -> None:
        """Close and open GPUs by the present slowdowns."""
        found: dict[Key, Closed] = {}
        for run in runs:
            present, bound = pressed.get(run.key), run.max_slowdown
            if present is None or bound is None or not run.open:
                continue
            before, slower = self._closed.get(run.key), 1.0 / present.speed
            above = bool(present.others) and slower > bound * (1 + SLACK)
            if above and (before is None or not before.others <= present.others):
                before = Closed(frozenset(run.gpu_uuids or ()), present.others)
            if above or (before and present.others and before.others <= present.others):
                assert before is not None
                found[run.key] = before
            self._note(run, present, slower, closed=run.key in found)
        self._closed = found

    def _note(self, run: PresentRun, present: Pressed, slower: float, *, closed: bool) -> None:
        """Note each change once in the job's events; a restart of colocd does not repeat it."""
        if closed == (run.key in self._closed):
            return
        text = AGAIN
        if closed:
            number = len(present.others)
            beside = "one other job" if number == 1 else f"{number} other jobs"
            text = (
                f"{slower:.1f} times slower than alone beside {beside},"
                f" {run.max_slowdown:g} at most was asked for: {self._means}"
            )
        events = self._store.events(run.decision, run.job_id)
        noted = [line.text for line in events if line.kind == "slowdown"]
        if noted and noted[-1].endswith(text.partition(": ")[2]):
            return
        self._store.note(run.decision, run.job_id, "slowdown", text)
        log.info("slowdown", jobid=run.job_id, decision=run.decision, what=text)
