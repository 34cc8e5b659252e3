# SPDX-License-Identifier: Apache-2.0
"""Cards, MIG profiles, fences and what samples of a GPU add up to. Pure."""
