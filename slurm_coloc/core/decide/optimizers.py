# SPDX-License-Identifier: Apache-2.0
"""Names of the optimizers, on the command line and elsewhere.

A plain name is PyTorch's default on CUDA, foreach. ``-fused`` is fused=True, which the Trainer of
transformers sets with PyTorch 2.8 and newer; ``-for-loop`` is foreach=False, and any optimizer that
steps one parameter after the other, as transformers' own AdamW did.
"""

from typing import Literal, get_args

Optimizer = Literal[
    "sgd",
    "sgd-momentum",
    "adam",
    "adamw",
    "adafactor",
    "adam8bit",
    "adam-fused",
    "adamw-fused",
    "adam-for-loop",
    "adamw-for-loop",
    "rmsprop",
    "rmsprop-momentum",
    "adagrad",
    "adamax",
    "nadam",
    "radam",
    "lion",
]
OPTIMIZERS: tuple[str, ...] = get_args(Optimizer)
