# SPDX-License-Identifier: Apache-2.0
"""What the agent makes of its samples, without I/O.

``whose``: the job of a process, from what /proc shows. ``reading``: one sample of a GPU, its
activity divided among the jobs on it. ``window``: the means of the last 90 s. ``series``: a run's
course in few points. ``on_gpu``: what a run used of one GPU. ``pids``: its processes. ``use``: all
that a run used, as its record. ``final_usage``: that record at the run's end. ``idle``: a GPU that
a job holds and does not use.
"""
