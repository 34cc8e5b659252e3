# SPDX-License-Identifier: Apache-2.0
"""Planning ahead: what a policy sees as numbers (`scene`, `combos`), a plan played to its end
(`rollout`), and the search for the plan that is done first (`search`)."""
