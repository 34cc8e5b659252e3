# SPDX-License-Identifier: Apache-2.0
"""For the Trainer of transformers: a callback that saves and leaves at the slot's end.

    trainer = Trainer(..., callbacks=[SlotCallback()])
    trainer.train(resume_from_checkpoint=last_checkpoint(args.output_dir))

The Trainer keeps random numbers itself and passes over the batches that were done.
"""

import re
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from slurm_coloc.checkpoint import next_slot, ranks
from slurm_coloc.checkpoint.slot import Slot

# Written into a checkpoint's folder when all of it is there: the Trainer fills the folder in place.
COMPLETE = "coloc-complete"


def last_checkpoint(folder: str) -> str | None:
    """The newest checkpoint in ``output_dir`` that is whole; None where there is none."""
    found = {
        int(match[1]): path
        for path in Path(folder).glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d+)", path.name)) and (path / COMPLETE).is_file()
    }
    return str(found[max(found)]) if found else None


class SlotCallback(TrainerCallback):
    """``also``: see Slot."""

    def __init__(self, also: tuple[str, ...] = ()) -> None:
        self.slot = Slot(also=also)
        self._leaves = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start to listen for the slot's end."""
        self.slot.__enter__()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Ask the Trainer to save and stop when the slot ends; every rank calls this."""
        if ranks.anyone(self.slot.due):
            control.should_save = True
            control.should_training_stop = True
            self._leaves = state.global_step < state.max_steps

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint is written on this rank: wait for the others."""
        ranks.barrier()
        if ranks.rank() == 0:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / COMPLETE).touch()
            next_slot.say(f"{next_slot.SAVED}, step {state.global_step}")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Leave if the slot ended and not the training."""
        self.slot.__exit__()
        if self._leaves:
            next_slot.leave()
