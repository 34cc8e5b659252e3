# SPDX-License-Identifier: Apache-2.0
"""Gives the estimators what runs their networks: the one place that knows both."""

from slurm_coloc.adapters.onnx import Onnx
from slurm_coloc.estimate.baselines.nets.runner import use


def provide() -> None:
    """Nothing is loaded before a network is asked."""
    use(Onnx())
