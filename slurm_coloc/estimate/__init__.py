# SPDX-License-Identifier: Apache-2.0
"""From a model summary's text to GPU memory: parsers, features, estimators, registry."""
