# SPDX-License-Identifier: Apache-2.0
"""Texts made from command line and configuration: manual pages, completions, docs/reference.

`make docs` writes them; nothing here runs on a cluster but reference.py, for `coloc config show`.
"""
