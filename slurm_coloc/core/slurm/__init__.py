# SPDX-License-Identifier: Apache-2.0
"""Slurm's side of a decision: jobs, gres, limits, names, as Slurm writes them. Pure."""
