# SPDX-License-Identifier: Apache-2.0
"""From a training step's allocations to the memory that PyTorch takes from the GPU."""
