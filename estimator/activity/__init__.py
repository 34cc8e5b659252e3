# SPDX-License-Identifier: Apache-2.0
"""Fits and judges the head for SM activity; see README.md."""
