# SPDX-License-Identifier: Apache-2.0
"""From an estimate to the memory that a job will not exceed."""

#: placeholder
MARGINS = {"text": 1.3, "text-cut": 1.8, "traced": 1.15}


def upper_mib(memory_mib: int, context_mib: int, tier: str, family: str) -> int:
    """The bound (MiB) for an estimate of a tier and family."""
    return context_mib + int((memory_mib - context_mib) * MARGINS[tier]) + 128
