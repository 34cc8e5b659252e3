# SPDX-License-Identifier: Apache-2.0
"""colocd: follows jobs in Slurm and records how each run ended."""
