# SPDX-License-Identifier: Apache-2.0
"""Where jobs go: the queue, the GPUs, the gate, interference and steering. Pure."""
