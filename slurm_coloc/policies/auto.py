# SPDX-License-Identifier: Apache-2.0
"""Auto: by who uses the GPUs that are shared.

Where all jobs share, the GPU with the most free memory (magm): it spreads them, so that they slow
each other least. Where a job has whole GPUs or waits for them, idle GPUs are spared for such jobs:
a sharer goes beside others where it gains enough (interference), and there to the GPU with the
least free memory that admits it.
"""

from slurm_coloc.core.place.gpu_slot import GpuSlot, PlaceRequest
from slurm_coloc.core.place.placing import Start, View
from slurm_coloc.core.place.queue_discipline import first_that_starts
from slurm_coloc.policies.interference import spares
from slurm_coloc.policies.magm import POLICY as SPREAD


def _sparing(request: PlaceRequest, slot: GpuSlot, view: View) -> tuple[float, ...]:
    return (spares(request, slot, view), slot.free_mib, slot.index)


class Auto:
    """One of the two, at each decision anew."""

    name = "auto"

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        return first_that_starts(view, _sparing) if view.is_mixed() else SPREAD.next(view)


POLICY = Auto()
