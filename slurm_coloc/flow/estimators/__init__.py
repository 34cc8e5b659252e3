# SPDX-License-Identifier: Apache-2.0
"""What the estimators are handed from outside: calibrations and networks."""
