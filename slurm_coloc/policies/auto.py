# SPDX-License-Identifier: Apache-2.0
"""Auto: by who uses the GPUs that are shared.

Where all jobs share, the GPU with the most free memory (magm): it spreads them, so that they slow
each other least. Where a job has whole GPUs or waits for them, idle GPUs are spared for such jobs,
as interference does it.
"""

from slurm_coloc.core.place.placing import Start, View
from slurm_coloc.policies.interference import POLICY as SPARING
from slurm_coloc.policies.magm import POLICY as SPREAD


class Auto:
    """One of the two, at each decision anew."""

    name = "auto"

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        return (SPARING if view.is_mixed() else SPREAD).next(view)


POLICY = Auto()
