# SPDX-License-Identifier: Apache-2.0
"""slurm-coloc: GPU sharing for deep-learning training on Slurm clusters."""

__version__ = "0.1.0"
