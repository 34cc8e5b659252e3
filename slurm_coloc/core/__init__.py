# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: no I/O, clock or randomness. A recorded snapshot gives the same answer again."""
