# SPDX-License-Identifier: Apache-2.0
"""The rules behind doctor's checks and the plans. Pure."""
