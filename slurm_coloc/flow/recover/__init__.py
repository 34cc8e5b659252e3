# SPDX-License-Identifier: Apache-2.0
"""colocd: puts jobs back with what their next try asks for."""
