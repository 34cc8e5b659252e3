# SPDX-License-Identifier: Apache-2.0
"""The Lua hooks under the real interpreter, against real sockets."""
