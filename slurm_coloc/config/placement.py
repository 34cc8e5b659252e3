# SPDX-License-Identifier: Apache-2.0
"""[placement] and [slowdown]: the GPU of a shared job, and how much neighbours may slow it."""

from typing import Literal

from pydantic import Field

from slurm_coloc.config.base import Section


class PlacementConfig(Section):
    """[placement] how the GPU of a shared job is chosen."""

    mode: Literal["native", "steered"] = Field(
        "native",
        description="native: Slurm chooses, by first fit or LL_SHARED_GRES. steered: colocd pins"
        " waiting shared jobs to the GPU that the policy chooses on live telemetry (Slurm 24.11"
        " and later, a gres Type for each GPU: see `coloc doctor`).",
    )
    nodes: tuple[str, ...] = Field(
        (),
        description="What is steered: host lists (gpu[01-08]) or features of nodes; empty: every"
        " node whose GPUs have a Type each.",
    )
    policy: str = Field(
        "auto",
        description="The policy that chooses, one of those of `coloc simulate`. auto: magm where"
        " all jobs share; where a job has whole GPUs or waits for them, shared GPUs before idle"
        " ones, as long as the job gains enough beside others.",
    )
    plan: Literal["off", "where", "order"] = Field(
        "off",
        description="steered: plan the whole queue, by what is known of each job's time (its log,"
        " agent.log_read_s, or its owner's earlier runs) and activity. where: the plan says on"
        " which GPU a job starts. order: also which of its owner's jobs goes first; by the plan no"
        " job starts later than without sharing. Of more than 32 GPUs those with room are"
        " planned, and order is where; for what a plan leaves out, policy decides.",
    )
    smact_gate: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Present SM activity (mean of agent.window_s) above which a GPU gets no other"
        " job; 1: no gate. Where every GPU with room is above it a job waits, max_pin_s at most;"
        " where age counts (PriorityWeightAge) steered has a gate only with"
        " SchedulerParameters=extra_constraints or PriorityFlags=ACCRUE_ALWAYS.",
    )
    node_gate: bool = Field(
        False,
        description="native: let Slurm itself keep shared jobs off nodes whose GPUs are all above"
        " smact_gate. Needs SchedulerParameters=extra_constraints (Slurm 23.11 and later), which"
        " makes Slurm read every job's --extra.",
    )
    stale_s: float = Field(
        60.0, ge=5, description="Age of telemetry (s) above which colocd leaves a node to Slurm."
    )
    max_pin_s: float = Field(
        300.0,
        ge=1,
        description="Seconds after which a job that waits in a pin, or at the gate, is left to"
        " Slurm.",
    )
    whole_first: bool = Field(
        False,
        description="steered: reserve, for each job that waits for whole GPUs, as many as it"
        " requests, free ones first. Jobs behind it in the queue share other GPUs or start on idle"
        " ones. Fewer jobs for whole GPUs then wait longer than without sharing, and sharing saves"
        " less. false: Slurm's backfill decides.",
    )
    idle_first: Literal["auto"] | bool = Field(
        "auto",
        description="Whether shared jobs get idle GPUs before shared ones. auto: while no job waits"
        " for whole GPUs or has them, since sharers on idle GPUs make such jobs wait. Natively it"
        " is Slurm's LL_SHARED_GRES; `coloc doctor` compares.",
    )
    interval_s: float = Field(
        5.0,
        ge=1,
        description="Seconds between two polls of the queue. Where a round takes more than a fifth"
        " of that, as with thousands of waiting jobs, the pause is five times as long as the round,"
        " 60 s at most.",
    )
    ahead: int = Field(
        32, ge=1, le=1000, description="How many waiting jobs are placed ahead, in Slurm's order."
    )


class SlowdownConfig(Section):
    """[slowdown] jobs that run slower because they share a GPU."""

    stretch: Literal["running", "off"] = Field(
        "running",
        description="running: when the time limit of a running job comes near, extend it by what"
        " the job lost because it shared. off: limits stay as they are.",
    )
    max_factor: float = Field(
        4.0,
        ge=1,
        le=100,
        description="No limit is extended beyond this factor times what its owner gave, nor beyond"
        " the partition's MaxTime, a MaxWall, or the begin of a reservation of the node.",
    )
    margin_s: float = Field(
        300.0,
        ge=15,
        description="A limit is checked when so many seconds of it are left (a quarter of a short"
        " one), and extended by what was lost so far and by this at most.",
    )
    max_slowdown: float | None = Field(
        None,
        ge=1,
        le=100,
        description="Slowdown limit (time with neighbours over time alone) of a shared job whose"
        " owner gives none (--coloc-max-slowdown); none: any slowdown is allowed.",
    )
    interval_s: float = Field(
        5.0, ge=1, le=60, description="Seconds between two polls of which jobs share a GPU."
    )
