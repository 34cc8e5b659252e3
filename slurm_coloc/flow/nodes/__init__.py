# SPDX-License-Identifier: Apache-2.0
"""colocd: answers the nodes' agents, Prologs and Epilogs."""
