# SPDX-License-Identifier: Apache-2.0
"""GPUMemNet's ensemble of 13 MLPs over engineered features (thesis, chapter 5)."""

from slurm_coloc.estimate.baselines.nets.answering import Networked

ESTIMATOR = Networked("gpumemnet-mlp", "mlp")
