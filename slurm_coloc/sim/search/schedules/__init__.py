# SPDX-License-Identifier: Apache-2.0
"""Schedules as lines of jobs, one line a slot, and the local search over them.

`problem` is what there is to schedule, `plan` where a job stands in the lines, `anneal` the search;
its hot loop is in C (`kernel`, by way of `native`). Planning ahead uses it for what waits now
(sim/search/planning), the simulator for a whole trace that it knows beforehand
(sim/search/clairvoyant).
"""
