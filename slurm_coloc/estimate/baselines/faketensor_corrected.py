# SPDX-License-Identifier: Apache-2.0
"""Fake tensors with gradients, optimizer state and context; see faketensor."""

from slurm_coloc.estimate.baselines.faketensor import FakeTensor

ESTIMATOR = FakeTensor("faketensor-corrected", corrected=True)
