# SPDX-License-Identifier: Apache-2.0
"""Schedules: for each slot a queue of jobs, and the local search over them.

`problem` has what there is to schedule and where a plan puts each job, `anneal` the search; its hot
loop is in C (`kernel`, by way of `native`). Planning ahead uses it for what waits now
(its parent), the simulator for a whole trace that it knows beforehand (sim/search/clairvoyant).
"""
