# SPDX-License-Identifier: Apache-2.0
"""MUG, most utilised GPU: the one with the highest SM activity that admits the job."""

from slurm_coloc.core.place.queue_discipline import ByOrder

POLICY = ByOrder("mug", lambda request, slot, view: (-slot.shown_smact, slot.index))
