# SPDX-License-Identifier: Apache-2.0
"""`make demo`: the main job on an embedded Slurm with emulated GPUs."""
