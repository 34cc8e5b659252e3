# SPDX-License-Identifier: Apache-2.0
"""Command line and node: how they reach colocd."""
