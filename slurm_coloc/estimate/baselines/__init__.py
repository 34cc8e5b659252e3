# SPDX-License-Identifier: Apache-2.0
"""Other groups' estimators, for comparison. ``auto`` never chooses one."""
