# SPDX-License-Identifier: Apache-2.0
"""Best fit: the GPU with the least free memory that admits the job."""

from slurm_coloc.core.place.queue_discipline import ByOrder

POLICY = ByOrder("best-fit", lambda request, slot, view: (slot.free_mib, slot.index))
