# SPDX-License-Identifier: Apache-2.0
"""Placing jobs: the queue, the GPUs, the gate, interference and steering. Pure."""
