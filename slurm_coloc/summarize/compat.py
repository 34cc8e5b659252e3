# SPDX-License-Identifier: Apache-2.0
"""torchvision whose compiled operators do not load here (a CUDA build on a login node, another
release than torch's): its models need none of them."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

_KEPT: list[Any] = []  # a library's operators go with it


def torchvision_without_operators() -> None:
    """To be called before torchvision is imported."""
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)
    name = "torchvision._meta_registrations"
    sys.modules[name] = types.ModuleType(name)
