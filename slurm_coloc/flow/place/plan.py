# SPDX-License-Identifier: Apache-2.0
"""The plan of the whole queue, where the site wants one (placement.plan)."""

import math
import time
from typing import TYPE_CHECKING

import structlog

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.place.placing import Policy
from slurm_coloc.core.place.steering import Snapshot

if TYPE_CHECKING:
    from slurm_coloc.planning.live import Planner

#: seconds for which pairs are used without reading them again
FRESH_S = 60.0
log = structlog.get_logger()


class Plan:
    """Plans each round's snapshot. The search is loaded only where it is wanted."""

    def __init__(self, wish: str, policy: Policy) -> None:
        """``wish``: placement.plan; ``policy``: places what the plan leaves out."""
        self._planner = None if wish == "off" else _planner(policy)
        self._said, self._read_s = "", -math.inf

    def know(self, store: Store) -> None:
        """Read what was measured of pairs, once a minute."""
        if self._planner is not None and time.monotonic() - self._read_s > FRESH_S:
            self._read_s = time.monotonic()
            self._planner.know(store.pairs.newest())

    def of(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with a plan, where there is one; why there is none is logged once."""
        if self._planner is None:
            return snapshot
        planned, why = self._planner.planned(snapshot)
        if why != self._said:
            self._said = why
            log.warning("place", result="not planned", reason=why) if why else None
        return planned


def _planner(policy: Policy) -> "Planner":
    from slurm_coloc.planning.live import Planner

    return Planner(policy)
