# SPDX-License-Identifier: Apache-2.0
"""How the tests are run: which of them, in what order, and what a second try means.

Plugins of pytest that tests/conftest.py registers. Nothing here is a test.
"""
