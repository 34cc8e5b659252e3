# SPDX-License-Identifier: Apache-2.0
"""Jobs, gres, limits and names as Slurm writes them. Pure."""
