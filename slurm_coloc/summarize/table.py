# SPDX-License-Identifier: Apache-2.0
"""The text that a person reads above the block: torchinfo's table, else print(model)."""

from __future__ import annotations

import logging
from typing import Any

import torch

log = logging.getLogger(__name__)
COLUMNS = ("input_size", "output_size", "num_params", "kernel_size")
DEPTH = 20


def table(
    model: torch.nn.Module, args: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None
) -> str:
    """Of the model and one batch, inside the mode that made them. Never raises: whatever torchinfo
    cannot run is printed as a tree without shapes."""
    try:
        import torchinfo

        given = {"input_data": keywords} if keywords and not args else {"input_data": list(args)}
        made = torchinfo.summary(
            model, **given, depth=DEPTH, mode="train", col_names=COLUMNS, verbose=0, device="cpu"
        )
        return f"{made}\n"
    except Exception as err:  # a table is for people: no reason to fail
        log.info("no torchinfo table: %s", err)
        return f"{model}\n{_footer(model)}\n"


def _footer(model: torch.nn.Module) -> str:
    total = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    rule = "=" * 64
    return (
        f"{rule}\nTotal params: {total:,}\nTrainable params: {trained:,}\n"
        f"Non-trainable params: {total - trained:,}\n{rule}"
    )
