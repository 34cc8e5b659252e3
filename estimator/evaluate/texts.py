# SPDX-License-Identifier: Apache-2.0
"""torchinfo's and torchsummary's texts of timm models, as users have them. Needs torch, timm,
torchinfo, torchsummary."""

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from estimator.evaluate.published import stamp
from estimator.evaluate.recorded import prepared

BATCH = 32
#: how a text is printed: all rows and columns, or what torchinfo does by default (three levels)
KINDS: dict[str, dict[str, Any]] = {
    "full": {
        "depth": 20,
        "col_names": ("input_size", "output_size", "num_params", "kernel_size"),
    },
    "default": {},
}

#: printed by torchsummary, which runs the model on the CPU: some seconds each
FLAT = "torchsummary"


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
    prepared()
    import timm
    import torch
    import torchinfo

    stamp(folder)
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


def make_flat(models: Sequence[str], folder: Path) -> None:
    """The same of torchsummary, which prints a flat table without the batch. Names what is left
    out: it knows neither several inputs nor several outputs."""
    prepared()
    import timm
    import torch
    import torchsummary

    torch.set_num_threads(1)
    stamp(folder)
    for name in models:
        path = folder / f"{name}.{FLAT}"
        if path.exists():
            continue
        printed = io.StringIO()
        try:
            model = timm.create_model(name, num_classes=1000).eval()
            with torch.no_grad(), redirect_stdout(printed):
                torchsummary.summary(model, model.default_cfg["input_size"], device="cpu")
        except Exception as why:  # see make
            print(f"{name}: left out: {type(why).__name__}: {str(why)[:100]}", file=sys.stderr)
            continue
        path.write_text(printed.getvalue())
