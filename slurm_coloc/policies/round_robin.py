# SPDX-License-Identifier: Apache-2.0
"""Round robin: the next GPU of a ring that admits the job."""

from slurm_coloc.core.place.queue_discipline import ByOrder

POLICY = ByOrder(
    "round-robin", lambda request, slot, view: ((slot.index - view.turn) % len(view.slots),)
)
