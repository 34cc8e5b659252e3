# SPDX-License-Identifier: Apache-2.0
"""Node, agent and hooks: what both read and write of the jobs on this node, and the way of a
report.

The only room of flow/ that two programs share, beside flow/client/connect and flow/estimators.
"""
