# SPDX-License-Identifier: Apache-2.0
"""Written by training."""

RANGES: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {}
