# SPDX-License-Identifier: Apache-2.0
"""DCGM by its program, dcgmi, which speaks to the host engine: no right is needed here, and a node
without DCGM costs nothing.

``program`` starts it, ``counters`` reads the profiling counters that it prints each second,
``jobs`` has it keep statistics of a job.
"""
