# SPDX-License-Identifier: Apache-2.0
"""First fit: the first GPU that admits the job, as Slurm's own shards do."""

from slurm_coloc.core.place.queue_discipline import ByOrder

POLICY = ByOrder("first-fit", lambda request, slot, view: (slot.index,))
