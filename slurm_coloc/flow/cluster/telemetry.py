# SPDX-License-Identifier: Apache-2.0
"""The nodes' last GPU figures, kept in memory, not older than agent.beat_s."""

import contextlib
import time
from collections.abc import Iterator
from typing import Annotated, Any

import structlog
from pydantic import BeforeValidator, Field, ValidationError

from slurm_coloc.adapters.store import Store
from slurm_coloc.flow.cluster.overruns import OverrunNow, Overruns, Time
from slurm_coloc.flow.nodes.epilog import Message

log = structlog.get_logger()

STALE_S = 60.0  # an agent reports every 30 s at least
Mib = Annotated[int, Field(ge=0, le=2**24)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None
Figure = Annotated[float, Field(ge=0, le=1e8, allow_inf_nan=False)] | None
Count = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None
JobId = Annotated[int, Field(ge=1, le=2**32)]
Text = Annotated[str, Field(max_length=160, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]


class JobThere(Message):
    """A job on a GPU, the MiB that its processes hold there, and its part of the SM activity:
    measured where it is alone, else divided (core/gpu/telemetry/reading)."""

    job_id: JobId
    mib: Mib
    smact: Ratio = None


class GpuNow(Message):
    """One GPU or MIG device; activities, PCIe and power are means over agent.window_s. ``why``: why
    there is no activity."""

    uuid: Annotated[str, Field(pattern=r"^[A-Za-z0-9/-]{1,96}$")]
    index: Annotated[int, Field(ge=0, le=255)] = 0
    minor: Annotated[int, Field(ge=0, le=255)] | None = None
    name: Text = ""
    total_mib: Mib
    free_mib: Mib
    smact: Ratio = None
    smocc: Ratio = None
    dram: Ratio = None
    pcie_tx_mib_s: Figure = None
    pcie_rx_mib_s: Figure = None
    power_w: Figure = None
    jobs: tuple[JobThere, ...] = Field((), max_length=48)
    foreign_mib: Mib = 0
    why: Text = ""


class IdleRun(Message):
    """A run that holds a GPU and does not use it. ``certain_s``: see telemetry.idle; None from an
    agent one release older, too."""

    job_id: JobId
    restart: Annotated[int, Field(ge=0, le=2**16)]
    since_s: Time
    certain_s: Time | None = None
    held_mib: Mib = 0


class ProgressNow(Message):
    """How far a run is by its log (core/time/progress/forecast): at ``at_s``, Unix seconds.
    ``said_s``: when the log first said ``done``; None from an agent one release older."""

    job_id: JobId
    restart: Annotated[int, Field(ge=0, le=2**16)]
    at_s: Time
    done: Ratio = None
    left_s: Figure = None
    low_s: Figure = None
    high_s: Figure = None
    epoch: Count = None
    epochs: Count = None
    said_s: Time | None = None


def _sound(claims: object) -> list[ProgressNow]:
    """Those that are sound. They come from users' logs: none may cost its node the rest of a
    heartbeat."""
    found = []
    for one in claims[:64] if isinstance(claims, list) else ():
        with contextlib.suppress(ValidationError):
            found.append(ProgressNow.model_validate(one))
    return found


class Beat(Message):
    """The GPUs in a heartbeat."""

    gpus: tuple[GpuNow, ...] = Field((), max_length=64)
    idle: tuple[IdleRun, ...] = Field((), max_length=64)
    overruns: tuple[OverrunNow, ...] = Field((), max_length=64)
    gpus_why: Text = ""
    progress: Annotated[tuple[ProgressNow, ...], BeforeValidator(_sound)] = ()


class Live:
    def __init__(self, store: Store) -> None:
        self._began_s = time.time()
        self._beats: dict[str, tuple[float, Beat]] = {}
        self._unsent: dict[str, None] = {}  # nodes with figures that the front does not have
        self._overruns = Overruns(store)

    def take(self, node: str, message: dict[str, Any]) -> None:
        """Take a heartbeat of ``node``; a malformed part is left out."""
        try:
            beat = Beat.model_validate(message)
        except ValidationError as err:
            log.warning("beat", node=node, error=str(err.errors()[0]["msg"])[:120])
            return
        self._beats[node] = (time.time(), beat)
        self._unsent[node] = None
        self._overruns.take(node, beat.overruns)

    def idle(self, max_age_s: float) -> list[tuple[str, IdleRun]]:
        """The runs that are idle now, each with its node, of words not older than ``max_age_s``."""
        since_s = time.time() - max_age_s
        return [
            (node, one)
            for node, (at_s, beat) in self._beats.items()
            if at_s >= since_s
            for one in beat.idle
        ]

    def progress(self, node: str, job_id: int, restart: int) -> ProgressNow | None:
        """How far a run on a node is by its log, where its agent tells."""
        beat = self._beats.get(node)
        found = beat[1].progress if beat else ()
        run = (job_id, restart)
        return next((one for one in found if (one.job_id, one.restart) == run), None)

    def all_progress(self) -> dict[tuple[int, int], ProgressNow]:
        """How far all runs are by their logs, by job and restart."""
        beats = (beat for _, beat in self._beats.values())
        return {(one.job_id, one.restart): one for beat in beats for one in beat.progress}

    def of(self, node: str) -> tuple[float, tuple[GpuNow, ...]] | None:
        """A node's last figures and their time (Unix seconds), however old; None: none yet."""
        beat = self._beats.get(node)
        return (beat[0], beat[1].gpus) if beat else None

    def awaited(self, node: str, grace_s: float) -> bool:
        """Whether a node has not reported yet and colocd started less than ``grace_s`` ago."""
        return node not in self._beats and time.time() - self._began_s < grace_s

    def figures(self, *, every: bool = False) -> Iterator[dict[str, Any]]:
        """What colocd's front is to know of the nodes that were heard since the last call
        (``every``: of all); a node's figures are out of date after ``until_s``."""
        names = list(self._beats) if every else list(self._unsent)
        self._unsent.clear()
        for name in names:
            at_s, beat = self._beats[name]
            times = {"node": name, "at_s": at_s, "until_s": at_s + STALE_S}
            yield times | beat.model_dump(mode="json")
