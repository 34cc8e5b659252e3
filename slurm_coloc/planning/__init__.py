# SPDX-License-Identifier: Apache-2.0
"""Planning ahead, for the simulator and for colocd: what is seen as numbers (`snapshot`, `combos`),
list schedules played to their end (`lists`, `rollout`), and the search from there (`search`) over
schedules (`now`, planning/schedules). colocd loads it only where placement.policy is "planned".
"""
