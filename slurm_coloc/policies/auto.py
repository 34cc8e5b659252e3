# SPDX-License-Identifier: Apache-2.0
"""Auto: by who uses the GPUs that are shared.

Where all jobs share, the GPU with the most free memory (magm): it spreads them, so that they slow
each other least. Where a job has whole GPUs or waits for them, the one with the least that admits
the job (best-fit): idle GPUs are left to those who need a whole one.
"""

from slurm_coloc.core.place.placing import Start, View
from slurm_coloc.policies.best_fit import POLICY as TOGETHER
from slurm_coloc.policies.magm import POLICY as APART


class Auto:
    """One of the two, at each decision anew."""

    name = "auto"

    def next(self, view: View) -> Start | None:
        """As the protocol says."""
        return (TOGETHER if view.is_mixed() else APART).next(view)


POLICY = Auto()
