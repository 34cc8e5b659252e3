# SPDX-License-Identifier: Apache-2.0
"""Node, agent: samples of each GPU, added up for each run."""
