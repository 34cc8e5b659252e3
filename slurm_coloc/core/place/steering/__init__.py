# SPDX-License-Identifier: Apache-2.0
"""Steering: on which GPU each waiting shared job is to run, on what Slurm and telemetry show.

A pin says where, never when: Slurm starts a pinned job in its own order, with its own backfill,
limits and reservations. Jobs are considered in Slurm's order. Each is given to the policy together
with the first one before it that cannot start, so a job is not sent to a GPU that the other waits
for. What is not sure is left to Slurm: old telemetry, a closed node, a job that waited long enough.

Pure: a recorded snapshot gives the same answers again.
"""

from slurm_coloc.core.place.steering.snapshot import (
    RECORDING_SCHEMA,
    Act,
    Answer,
    Device,
    Node,
    Pin,
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
    "Node",
    "Pin",
    "Rules",
    "Running",
    "Snapshot",
    "Waiting",
    "Why",
    "steer",
]
