# SPDX-License-Identifier: Apache-2.0
"""What the learned estimators see and what their answers mean; their weights lie here as ONNX.

Training (estimator/gpumemnet, beside the package) and the estimators share these files, so that a
network is never asked about features that it was not trained on: SCHEMA goes up with any change.
"""
