# SPDX-License-Identifier: Apache-2.0
"""torchinfo's texts of timm models, as users have them. Needs torch, timm and torchinfo."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BATCH = 32
#: how a text is printed: all rows and columns, or what torchinfo does by default (three levels)
KINDS: dict[str, dict[str, Any]] = {
    "full": {
        "depth": 20,
        "col_names": ("input_size", "output_size", "num_params", "kernel_size"),
    },
    "default": {},
}


@contextmanager
def real_linspace() -> Iterator[None]:
    """timm reads the values of its drop path rates, which meta tensors do not have."""
    import torch

    own = torch.linspace
    torch.linspace = lambda *given, **more: own(*given, **{**more, "device": "cpu"})
    try:
        yield
    finally:
        torch.linspace = own


def make(models: list[str], folder: Path) -> None:
    """Files MODEL.KIND in ``folder``; those that are there stay. A model that cannot be made is
    named on stderr and left out."""
    import timm
    import torch
    import torchinfo

    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        if all((folder / f"{name}.{kind}").exists() for kind in KINDS):
            continue
        try:
            with real_linspace(), torch.device("meta"):
                model = timm.create_model(name, num_classes=1000).train()
            size = (BATCH, *model.default_cfg["input_size"])
            for kind, how in KINDS.items():
                text = torchinfo.summary(
                    model, input_size=size, mode="train", device="meta", verbose=0, **how
                )
                (folder / f"{name}.{kind}").write_text(f"{text}\n")
        except Exception as why:  # many models, some of them with tricks that meta has not
            print(f"{name}: left out: {type(why).__name__}: {str(why)[:100]}", file=sys.stderr)
