# SPDX-License-Identifier: Apache-2.0
"""The search that only the simulator uses: with what it knows beforehand, and guessed run times."""
