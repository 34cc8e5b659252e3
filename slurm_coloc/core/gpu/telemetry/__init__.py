# SPDX-License-Identifier: Apache-2.0
"""What the agent makes of its samples, without I/O.

``whose``: a process' job from what /proc tells. ``reading``: one sample of a GPU. ``window``: the
means of the last 90 s. ``shares``: a GPU's activity divided among the jobs on it. ``series``: a
run's course in few points. ``use``: all that a run used, as its record. ``idle``: a GPU that is
held and not used.
"""
