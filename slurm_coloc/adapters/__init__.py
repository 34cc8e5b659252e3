# SPDX-License-Identifier: Apache-2.0
"""The only code that touches Slurm, NVML, SQLite and the file system. None imports another."""
