# SPDX-License-Identifier: Apache-2.0
"""Published models as training rows: timm's, by name, at their own image size."""

from typing import Any

import torch
from torch import Tensor, nn

from estimator.gpumemnet.models.drawn import Drawn


def named(name: str, family: str) -> Drawn:
    """A timm model with 1000 classes; its loss is the label-smoothed cross entropy that timm's
    training script takes."""
    import timm  # a few seconds, and only here

    config = timm.get_pretrained_cfg(name)
    size = config.input_size if config else (3, 224, 224)

    def loss(output: Any, batch: int) -> Tensor:
        scores = output[0] if isinstance(output, (tuple, list)) else output
        aim = torch.zeros(batch, dtype=torch.long)
        return nn.functional.cross_entropy(scores, aim, label_smoothing=0.1)

    return Drawn(
        family=family,
        make=lambda: timm.create_model(name, num_classes=1000),
        inputs=lambda batch: (torch.randn(batch, *size),),
        loss=loss,
        words={"timm": name},
    )
