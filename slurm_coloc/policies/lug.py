# SPDX-License-Identifier: Apache-2.0
"""LUG, least utilised GPU: the one with the lowest SM activity."""

from slurm_coloc.core.place.queue_discipline import ByOrder

POLICY = ByOrder("lug", lambda request, slot, view: (slot.shown_smact, slot.index))
