# SPDX-License-Identifier: Apache-2.0
"""Steering: chooses the GPU of each waiting shared job from what Slurm and telemetry show.

A pin says where a job runs, never when: Slurm starts it in its own order, with its own backfill,
limits and reservations. Jobs are considered in Slurm's order. The policy sees each job together
with the first one before it that cannot start, so that it does not take a GPU that the other waits
for. Doubtful cases are left to Slurm: old telemetry, a closed node, a job that waited long enough.

Pure: a recorded snapshot gives the same answers again.
"""

from slurm_coloc.core.place.steering.snapshot import (
    RECORDING_SCHEMA,
    Act,
    Answer,
    Device,
    IdleFirst,
    Node,
    Pin,
    Planned,
    Rules,
    Running,
    Snapshot,
    Waiting,
    Why,
)
from slurm_coloc.core.place.steering.walk import steer

__all__ = [
    "RECORDING_SCHEMA",
    "Act",
    "Answer",
    "Device",
    "IdleFirst",
    "Node",
    "Pin",
    "Planned",
    "Rules",
    "Running",
    "Snapshot",
    "Waiting",
    "Why",
    "steer",
]
