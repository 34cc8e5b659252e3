# SPDX-License-Identifier: Apache-2.0
"""For Hugging Face's Trainer: ``Trainer(..., callbacks=[Coloc("model.txt")])``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_coloc.summarize.watch import Watch

try:
    from transformers import TrainerCallback
except ImportError as err:
    raise ImportError("slurm_coloc.summarize.hf needs transformers: pip install it") from err


class Coloc(TrainerCallback):
    """Says after the first step what was estimated and reserved, and what is in use.

    Arguments are Watch's; the batch size is the Trainer's own where none is given.
    """

    def __init__(self, summary: str | Path | None = None, **options: Any) -> None:
        self._summary, self._options = summary, options
        self._watch: Watch | None = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Of the Trainer, after each optimizer step."""
        if self._watch is None:
            size = getattr(args, "per_device_train_batch_size", None)
            options: dict[str, Any] = {"batch_size": size} | self._options
            self._watch = Watch(self._summary, **options)
        self._watch.step()
