# SPDX-License-Identifier: Apache-2.0
"""Cards, MIG profiles, fences, and the use of a GPU from samples. Pure."""
