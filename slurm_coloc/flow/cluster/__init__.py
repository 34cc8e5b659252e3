# SPDX-License-Identifier: Apache-2.0
"""colocd: knows the cluster: its shape, the GPUs now, and which colocd is active."""
