# SPDX-License-Identifier: Apache-2.0
"""Node, Prolog and slurmstepd: the GPUs of a job, its fence and its MPS server."""
