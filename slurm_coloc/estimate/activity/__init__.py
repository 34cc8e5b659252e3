# SPDX-License-Identifier: Apache-2.0
"""How busy a training alone keeps a GPU, from its summary. Model card: estimator/activity."""
