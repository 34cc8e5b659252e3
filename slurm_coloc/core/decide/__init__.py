# SPDX-License-Identifier: Apache-2.0
"""What a job gets: request, estimate, history, number of shards, the rewritten request. Pure."""
