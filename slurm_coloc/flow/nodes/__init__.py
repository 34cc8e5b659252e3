# SPDX-License-Identifier: Apache-2.0
"""colocd: what it answers to nodes: agents, Prologs, Epilogs."""
