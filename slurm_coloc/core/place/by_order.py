# SPDX-License-Identifier: Apache-2.0
"""A policy that is an order of the GPUs that admit a job."""

from dataclasses import dataclass

from slurm_coloc.core.place.placing import Start, View
from slurm_coloc.core.place.queue_discipline import Key, first_that_starts


@dataclass(frozen=True, slots=True)
class ByOrder:
    """``key``: of a job and a seat; the seats with the lowest keys are used."""

    name: str
    key: Key

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        return first_that_starts(view, self.key)
