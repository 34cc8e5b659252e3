# SPDX-License-Identifier: Apache-2.0
"""GPUMemNet's Transformer over layer tuples (thesis, chapter 5)."""

from slurm_coloc.estimate.baselines.nets.answering import Networked

ESTIMATOR = Networked("gpumemnet-transformer", "transformer")
