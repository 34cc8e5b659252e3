# SPDX-License-Identifier: Apache-2.0
"""The page that an admin gets of last month's accounting: its `figures` and its `text`."""
