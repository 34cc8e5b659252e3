# SPDX-License-Identifier: Apache-2.0
"""MAGM, most available GPU memory (worst fit): the thesis' best; LL_SHARED_GRES in Slurm."""

from slurm_coloc.core.place.queue_discipline import ByOrder

POLICY = ByOrder("magm", lambda request, slot, view: (-slot.free_mib, slot.index))
