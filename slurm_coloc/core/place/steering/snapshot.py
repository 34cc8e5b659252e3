# SPDX-License-Identifier: Apache-2.0
"""What steering is decided on, and its answers. All of it can be written down and read back."""

from dataclasses import dataclass
from enum import StrEnum

#: of a recorded snapshot; goes up with any change of Snapshot or Answer
RECORDING_SCHEMA = 1


class Act(StrEnum):
    """What is done with a waiting job."""

    PIN = "pin"
    KEEP = "keep"  # the pin that it has
    UNPIN = "unpin"
    WAIT = "wait"  # not eligible for some seconds: every GPU with room is too busy
    NATIVE = "native"  # nothing: Slurm places it


class Why(StrEnum):
    """Reason codes."""

    POLICY = "policy"  # the policy's choice
    MOVED = "moved"  # the GPU that it was pinned to will not do any more; another does
    STALE = "stale"
    CLOSED = "node-closed"
    NO_ROOM = "no-room"
    GATE = "gate"
    BEHIND = "behind-first"
    WHOLE = "whole-first"  # GPUs are kept for one before it that waits for whole ones
    GAVE_UP = "gave-up"
    NOT_YET = "not-eligible"
    ENOUGH = "enough-ahead"
    BOUND = "max-slowdown"


@dataclass(frozen=True, slots=True)
class Rules:
    """[placement] as far as it decides. ``ahead``: jobs that are placed at a time. ``window_s``:
    telemetry is a mean of so many seconds."""

    policy: str = "magm"
    smact_gate: float = 0.8
    stale_s: float = 60.0
    max_pin_s: float = 300.0
    ahead: int = 32
    shard_mib: int = 1024
    max_jobs: int = 8
    multi_user: bool = False
    window_s: float = 90.0
    whole_first: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: shards that it has and that are taken, or taken whole. ``kind``: its own gres type.
    ``age_s``: of what telemetry says (None: nothing); ``smact``: None where it is not known;
    ``closed``: a job there bears no further neighbour."""

    kind: str
    shards: int
    used: int = 0
    whole: bool = False
    age_s: float | None = None
    free_mib: int = 0
    smact: float | None = None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``steered``: jobs may be pinned here; ``open``: Slurm may start jobs of anybody here
    now; ``cpus`` and ``memory_mib``: free ones."""

    name: str
    devices: tuple[Device, ...]
    steered: bool = True
    open: bool = True
    cpus: int = 0
    memory_mib: int = 0


@dataclass(frozen=True, slots=True)
class Running:
    """A job on known GPUs of a node. ``device``: their numbers there; ``held_mib``: what it holds
    of the first by telemetry; ``ends_s``: when its time limit ends it; ``max_slowdown``: that it
    bears (core/place/gpu_slot.Ask)."""

    job_id: int
    uid: int
    node: str
    devices: tuple[int, ...]
    shards: int
    start_s: float | None = None
    ends_s: float | None = None
    smact: float | None = None
    held_mib: int = 0
    max_slowdown: float | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """One GPU of one node."""

    node: str
    kind: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting job, in Slurm's order. ``gpus`` with ``shards`` of each (0: whole ones). ``nodes``:
    where it may run. ``ours``: it may be pinned. ``startable``: Slurm lacks nothing but resources
    for it. ``since_s``: since when it is pinned, or waits at the gate. ``given_up``: it is left to
    Slurm. ``run_s``: its time limit. ``tier``: of its partition."""

    job_id: int
    handle: str
    uid: int
    gpus: int
    shards: int
    nodes: tuple[str, ...]
    ours: bool = False
    startable: bool = True
    pin: Pin | None = None
    since_s: float | None = None
    given_up: bool = False
    run_s: float | None = None
    smact: float | None = None
    cpus: int = 1
    memory_mib: int = 0
    max_slowdown: float | None = None
    tier: int = 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is decided on. ``waiting``: in Slurm's order; ``turn``: the GPU after the last one
    that was used (round robin)."""

    at_s: float
    rules: Rules
    nodes: tuple[Node, ...]
    running: tuple[Running, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    turn: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What is done with one job of ours. ``pin``: where it is pinned afterwards."""

    job_id: int
    act: Act
    why: Why
    pin: Pin | None = None
    text: str = ""
