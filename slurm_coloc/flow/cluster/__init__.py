# SPDX-License-Identifier: Apache-2.0
"""colocd: what it knows of the cluster: its shape, the GPUs now, its own role."""
