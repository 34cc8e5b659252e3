# SPDX-License-Identifier: Apache-2.0
"""A search that knows everything beforehand: how near is a policy to the best that exists?"""

from slurm_coloc.sim.clairvoyant.search import Found, best_known

__all__ = ["Found", "best_known"]
