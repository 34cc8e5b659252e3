# SPDX-License-Identifier: Apache-2.0
"""One estimator a file. A module of this package that has ESTIMATORS is found by the registry."""
