# SPDX-License-Identifier: Apache-2.0
"""colocd: time limits of jobs that share, and time slots."""
