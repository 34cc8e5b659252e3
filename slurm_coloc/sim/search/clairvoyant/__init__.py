# SPDX-License-Identifier: Apache-2.0
"""A search that knows everything beforehand: how near is a policy to the best that exists?"""

from slurm_coloc.sim.search.clairvoyant.search import Clairvoyant, Found, best_known

__all__ = ["Clairvoyant", "Found", "best_known"]
