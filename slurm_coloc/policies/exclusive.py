# SPDX-License-Identifier: Apache-2.0
"""Exclusive: every job has its GPUs for itself, as in Slurm without slurm-coloc."""

from slurm_coloc.core.place.placing import Start, View
from slurm_coloc.core.place.queue_discipline import first_that_starts


class Exclusive:
    """Whole GPUs in the order of the queue."""

    name = "exclusive"

    def next(self, view: View) -> Start | None:
        return first_that_starts(view, lambda request, slot, view: (slot.index,), idle_only=True)


POLICY = Exclusive()
