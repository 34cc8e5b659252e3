# SPDX-License-Identifier: Apache-2.0
"""For Lightning's Trainer: ``Trainer(..., callbacks=[Coloc("model.txt")])``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slurm_coloc.summarize.resize import leading
from slurm_coloc.summarize.watch import Watch

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as err:
        raise ImportError(
            "slurm_coloc.summarize.lightning needs lightning: pip install it"
        ) from err


class Coloc(Callback):
    """Says after the first optimizer step what was estimated and reserved, and what is in use.

    Arguments are Watch's; the batch size is that of the first batch where none is given.
    """

    def __init__(self, summary: str | Path | None = None, **options: Any) -> None:
        self._summary, self._options = summary, options
        self._watch: Watch | None = None

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Of the Trainer; with accumulated gradients the step comes after several batches."""
        if trainer.global_step < 1 or not trainer.is_global_zero:
            return
        if self._watch is None:
            options: dict[str, Any] = {"batch_size": leading(batch)} | self._options
            self._watch = Watch(self._summary, **options)
        self._watch.step()
