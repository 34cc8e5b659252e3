# SPDX-License-Identifier: Apache-2.0
"""Time limits of jobs that share, and time slots. Pure."""
