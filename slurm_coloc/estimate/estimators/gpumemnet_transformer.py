# SPDX-License-Identifier: Apache-2.0
"""GPUMemNet's Transformer over layer tuples (thesis, chapter 5): a reference estimator.

The networks are trained again, on models of our own generator; see the model card in
estimator/gpumemnet. Answers are upper edges of memory classes: 1000 MiB wide for MLPs, 8000 MiB for
CNNs and Transformers.
"""

from slurm_coloc.estimate.api import Estimate, TrainingOptions
from slurm_coloc.estimate.nets.answering import answer
from slurm_coloc.estimate.summary import Summary


class GpuMemNetTransformer:
    """See the module."""

    name = "gpumemnet-transformer"
    version = "1"

    def estimate(self, summary: Summary, options: TrainingOptions, context_mib: int) -> Estimate:
        """See Estimator.estimate."""
        return answer(self.name, self.version, "transformer", summary, options, context_mib)


ESTIMATOR = GpuMemNetTransformer()
