# SPDX-License-Identifier: Apache-2.0
"""Shapes for convolutional networks whose text prints none, from the shape of an input."""
