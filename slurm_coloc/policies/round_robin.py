# SPDX-License-Identifier: Apache-2.0
"""Round robin: the next GPU of a ring that admits the job."""

from slurm_coloc.core.place.queue_discipline import ByOrder

POLICY = ByOrder(
    "round-robin", lambda ask, seat, view: ((seat.index - view.turn) % len(view.seats),)
)
