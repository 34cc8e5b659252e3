# SPDX-License-Identifier: Apache-2.0
"""The controllers of a cluster, and which of them is in charge."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Controller:
    """A slurmctld of the cluster, and whether it answered."""

    host: str
    up: bool
    primary: bool


def active_controller(found: Sequence[Controller]) -> Controller | None:
    """The controller in charge: the first that answers, in slurm.conf's order (a primary that
    comes back takes over from its backup at once; man scontrol, takeover)."""
    return next((one for one in found if one.up), None)
