# SPDX-License-Identifier: Apache-2.0
"""An embedded one-machine Slurm for the demo, the tests and trying out.

Nothing imports it but the command line.
"""
