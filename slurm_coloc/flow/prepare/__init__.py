# SPDX-License-Identifier: Apache-2.0
"""colocd's front: users' texts are read and estimated in limited children that can be ended."""
