# SPDX-License-Identifier: Apache-2.0
"""How far a training is and how long it still takes, by what its log says."""
