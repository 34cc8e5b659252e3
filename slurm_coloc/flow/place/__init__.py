# SPDX-License-Identifier: Apache-2.0
"""colocd: which GPU a waiting job is pinned to, and the gate on SM activity."""
