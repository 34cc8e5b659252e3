# SPDX-License-Identifier: Apache-2.0
"""Readers of traces, one format a file."""
