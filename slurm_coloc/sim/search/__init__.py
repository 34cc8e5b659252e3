# SPDX-License-Identifier: Apache-2.0
"""The search that only the simulator uses: plans, schedules, guessed run times."""
