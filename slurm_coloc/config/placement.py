# SPDX-License-Identifier: Apache-2.0
"""Which GPU a shared job gets, and what its neighbours may cost it: [placement], [slowdown]."""

from typing import Literal

from pydantic import Field

from slurm_coloc.config.base import Section


class PlacementConfig(Section):
    """[placement] who says on which GPU a shared job runs."""

    mode: Literal["native", "steered"] = Field(
        "native",
        description="native: Slurm, by first fit or LL_SHARED_GRES. steered: colocd pins waiting"
        " shared jobs to the GPU that the policy chooses on live telemetry (Slurm 24.11 and later,"
        " a gres Type for each GPU: see `coloc doctor`).",
    )
    nodes: tuple[str, ...] = Field(
        (),
        description="What is steered: host lists (gpu[01-08]) or features of nodes; empty: every"
        " node whose GPUs have a Type each.",
    )
    policy: str = Field(
        "magm", description="The policy that chooses, one of those of `coloc simulate`."
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
        description="native: let Slurm itself hold shared jobs off nodes whose GPUs are all above"
        " smact_gate. Needs SchedulerParameters=extra_constraints (Slurm 23.11 and later), which"
        " makes Slurm read every job's --extra.",
    )
    stale_s: float = Field(
        60.0, ge=5, description="Age of telemetry from which a node is left to Slurm itself."
    )
    max_pin_s: float = Field(
        300.0,
        ge=1,
        description="Seconds after which a job that waits in a pin, or at the gate, is left to"
        " Slurm.",
    )
    whole_first: bool = Field(
        False,
        description="steered: for each job that waits for whole GPUs as many are kept as it wants,"
        " those that are free first; no job behind it joins others there, it shares other GPUs or"
        " starts on idle ones. Fewer jobs for whole GPUs wait longer than without sharing then, and"
        " sharing saves less. false: Slurm's backfill decides.",
    )
    interval_s: float = Field(5.0, ge=1, description="Seconds between two looks at the queue.")
    ahead: int = Field(
        32, ge=1, le=1000, description="So many waiting jobs are placed ahead, in Slurm's order."
    )


class SlowdownConfig(Section):
    """[slowdown] jobs that run slower because they share a GPU."""

    stretch: Literal["running", "off"] = Field(
        "running",
        description="running: give back to the time limit of a running job what it lost beside"
        " others, when its limit comes near. off: limits stay as they are.",
    )
    max_factor: float = Field(
        4.0,
        ge=1,
        le=100,
        description="No limit becomes longer than so many times what its owner gave; nor than the"
        " partition's MaxTime, a MaxWall, or the begin of a reservation of the node.",
    )
    margin_s: float = Field(
        300.0,
        ge=15,
        description="A limit is looked at when so many seconds of it are left (a quarter of a short"
        " one), and stretched by what was lost so far and this at most.",
    )
    max_slowdown: float | None = Field(
        None,
        ge=1,
        le=100,
        description="Time beside others over time alone that a shared job bears where its owner"
        " says nothing (--coloc-max-slowdown); none: any.",
    )
    interval_s: float = Field(
        5.0, ge=1, le=60, description="Seconds between two looks at who is beside whom."
    )
