# SPDX-License-Identifier: Apache-2.0
"""The admin's way in and out on three hosts with the distribution's own Slurm (docker/rollout)."""
