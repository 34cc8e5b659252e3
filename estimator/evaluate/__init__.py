# SPDX-License-Identifier: Apache-2.0
"""How far the estimators are from measured runs."""
