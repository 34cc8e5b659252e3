# SPDX-License-Identifier: Apache-2.0
"""The input of steering and its answers. All of it can be written down and read back."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from slurm_coloc.core.place.placing import ShareWith

IdleFirst = Literal["auto"] | bool

#: of a recorded snapshot; goes up with any change of Snapshot or Answer
RECORDING_SCHEMA = 6


class Act(StrEnum):
    """What is done with a waiting job."""

    PIN = "pin"
    KEEP = "keep"  # its present pin stays
    UNPIN = "unpin"
    WAIT = "wait"  # not eligible for some seconds: every GPU with room is too busy
    NATIVE = "native"  # nothing: Slurm places it


class Why(StrEnum):
    """The reason of an answer."""

    POLICY = "policy"  # the policy's choice
    PLAN = "plan"  # the plan of the whole queue chose its GPU, or lets it wait no longer
    MOVED = "moved"  # its pinned GPU no longer fits, another does
    STALE = "stale"
    CLOSED = "node-closed"
    NO_ROOM = "no-room"
    GATE = "gate"
    BEHIND = "behind-first"
    WHOLE = "whole-first"  # an earlier job waits for these GPUs, whole
    GAVE_UP = "gave-up"
    NOT_YET = "not-eligible"
    ENOUGH = "enough-ahead"
    BOUND = "max-slowdown"
    PLANNED = "planned-later"  # the plan of the whole queue starts it later
    USERS = "other-users"  # every GPU with room has jobs of users that it may not share with


@dataclass(frozen=True, slots=True)
class Rules:
    """The part of [placement] and [sharing] that decides. ``ahead``: jobs that are placed at a
    time. ``window_s``: telemetry is a mean over so many seconds. ``idle_first``: idle GPUs come
    before shared ones; "auto": while no job asks for whole GPUs. ``reorder``: of equal jobs the
    plan says which goes first."""

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
    share_with: ShareWith = "user"
    idle_first: IdleFirst = "auto"
    reorder: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: its shards, how many are taken, or that it is taken whole. ``kind``: its own gres
    type. ``age_s``: of its telemetry (None: there is none); ``smact``: None where not known;
    ``closed``: a slowdown limit allows no further neighbour there. ``card``: NVML's name of it, ""
    where no agent has told it."""

    kind: str
    shards: int
    used: int = 0
    whole: bool = False
    age_s: float | None = None
    free_mib: int = 0
    smact: float | None = None
    closed: bool = False
    card: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. ``steered``: jobs may be pinned here; ``open``: Slurm may start anybody's jobs here
    now; ``cpus`` and ``memory_mib``: free ones; ``users``: who has jobs without GPUs there, where
    Slurm gives nodes to one user at a time."""

    name: str
    devices: tuple[Device, ...]
    steered: bool = True
    open: bool = True
    cpus: int = 0
    memory_mib: int = 0
    users: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Running:
    """A job on known GPUs of a node. ``devices``: their numbers there; ``held_mib``: MiB that it
    holds of the first, by telemetry; ``ends_s``: the end of its time limit; ``max_slowdown``: as in
    core/place/gpu_slot.PlaceRequest. ``left_s``: seconds that it is expected to take still, beside
    its present neighbours, by its log or earlier runs. ``training``: OWNER:TRAINING
    (core/place/interference/learned), "" where it is not known."""

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
    account: str = ""
    left_s: float | None = None
    training: str = ""


@dataclass(frozen=True, slots=True)
class Pin:
    """One GPU of one node."""

    node: str
    kind: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A waiting job. ``gpus`` with ``shards`` of each (0: whole ones). ``nodes``: where it may run.
    ``ours``: it may be pinned. ``holdable``: a --coloc job on whole GPUs, which a plan may let
    wait. ``startable``: Slurm waits only for resources. ``since_s``: since when it is pinned or
    waits at the gate. ``given_up``: it is left to Slurm. ``run_s``: its time limit. ``tier``: of
    its partition. ``exclusive_user``: Slurm itself gives its nodes to one user at a time.
    ``account``: "" where it is not known. ``expected_s``: seconds that it is expected to run, by
    earlier runs, with ``spread``, the standard deviation of their logarithm. ``due_s``: when it
    would start if nobody shared (planning/shadow): from then on no plan lets it wait. ``training``:
    as in Running."""

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
    account: str = ""
    exclusive_user: bool = False
    expected_s: float | None = None
    spread: float = 0.0
    due_s: float | None = None
    holdable: bool = False
    training: str = ""

    def guarded(self, rules: Rules) -> bool:
        """Whether only its pin keeps it from another user's GPU. Without a pin such a job asks for
        a whole GPU, which Slurm itself shares with nobody."""
        return self.ours and rules.share_with != "anyone" and not self.exclusive_user


@dataclass(frozen=True, slots=True)
class Planned:
    """What a plan of the whole queue says of a waiting job: its GPUs, numbered over all nodes in
    the snapshot's order, and whether it starts ``now``. ``left``: a job has just left one of them,
    so that telemetry may show its memory still."""

    job_id: int
    gpus: tuple[int, ...]
    now: bool
    left: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All input. ``waiting``: in Slurm's order; ``turn``: index of the GPU after the last one that
    was used (round robin). ``plan``: of the whole queue (slurm_coloc/planning), where the site
    wants one; the policy places what it leaves out."""

    at_s: float
    rules: Rules
    nodes: tuple[Node, ...]
    running: tuple[Running, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    turn: int = 0
    plan: tuple[Planned, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer for one --coloc job. ``pin``: its pin afterwards."""

    job_id: int
    act: Act
    why: Why
    pin: Pin | None = None
    text: str = ""
