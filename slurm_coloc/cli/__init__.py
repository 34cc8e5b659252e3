# SPDX-License-Identifier: Apache-2.0
"""The program coloc: one file a subcommand."""
