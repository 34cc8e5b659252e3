# SPDX-License-Identifier: Apache-2.0
"""Models that nobody chose: drawn at random, written in each format that people have, recorded, and
the text's answer beside the recording's (python -m estimator.generated)."""
