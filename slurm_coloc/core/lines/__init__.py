# SPDX-License-Identifier: Apache-2.0
"""Schedules as lines of jobs, one line a seat, and the local search over them.

`problem` is what there is to schedule, `plan` a line of jobs for each seat, `play` the schedule
that follows, `moves` small changes, `anneal` the search. Planning ahead uses it for what waits now
(core/planning), the simulator for a whole trace that it knows beforehand (sim/clairvoyant).
"""
