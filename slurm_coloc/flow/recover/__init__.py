# SPDX-License-Identifier: Apache-2.0
"""colocd: puts jobs back into the queue with the request of their next try."""
