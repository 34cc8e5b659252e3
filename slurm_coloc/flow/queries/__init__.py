# SPDX-License-Identifier: Apache-2.0
"""colocd: what people ask of it."""
