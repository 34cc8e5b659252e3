# SPDX-License-Identifier: Apache-2.0
"""Planning ahead: what a policy sees as numbers (`snapshot`, `combos`), list schedules played to
their end (`lists`, `rollout`), and the search from there (`search`) over schedules (`now`,
sim/search/schedules)."""
