# SPDX-License-Identifier: Apache-2.0
"""One way to turn an estimate into a reservation a file, behind one registry."""
