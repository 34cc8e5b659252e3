# SPDX-License-Identifier: Apache-2.0
"""Node, Epilog: what a run used and how it ended, reported to colocd."""
