# SPDX-License-Identifier: Apache-2.0
"""A CPU that behaves like a CUDA device where that changes what a step allocates: devices, mixed
precision, and the operators that CUDA runs in another way."""
