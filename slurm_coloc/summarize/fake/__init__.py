# SPDX-License-Identifier: Apache-2.0
"""Tensors without numbers: PyTorch's fake tensors, made faster and with the few values that model
code asks for. ``mode.fake()`` is the way in."""
