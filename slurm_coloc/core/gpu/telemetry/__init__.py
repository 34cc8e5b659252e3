# SPDX-License-Identifier: Apache-2.0
"""Evaluates the agent's samples, without I/O.

``whose``: the job of a process, from /proc. ``reading``: one sample of a GPU, its activity divided
among the jobs on it. ``window``: the means of the last 90 s. ``series``: the course of a run in few
points. ``on_gpu``: a run's use of one GPU. ``pids``: its processes. ``use``: all its use, as its
record. ``final_usage``: that record at the run's end. ``idle``: a GPU held but not used.
"""
