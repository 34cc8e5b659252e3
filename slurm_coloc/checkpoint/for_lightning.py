# SPDX-License-Identifier: Apache-2.0
"""For Lightning's Trainer: a callback that saves and leaves at the slot's end.

    slot = SlotCallback("run.ckpt")
    trainer = Trainer(callbacks=[slot], ...)
    trainer.fit(model, data, ckpt_path=slot.last)

Lightning counts the batches of an epoch that was cut, but draws their order anew: such a training
goes on, it does not end bit for bit as an uncut one. Cuts between epochs do no such thing.
"""

from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from slurm_coloc.checkpoint import next_slot, ranks, rng
from slurm_coloc.checkpoint.slot import Slot


class SlotCallback(Callback):
    """Saves with the Trainer's own checkpoint, at ``path``; ``also``: see Slot."""

    def __init__(self, path: str, also: tuple[str, ...] = ()) -> None:
        self.path = Path(path)
        self.slot = Slot(also=also)

    @property
    def last(self) -> str | None:
        """For ``fit(ckpt_path=...)``: the checkpoint, None in the first slot."""
        return str(self.path) if self.path.exists() else None

    def state_dict(self) -> dict[str, Any]:
        """Goes into each checkpoint: random numbers, which Lightning does not keep."""
        return {"rng": rng.states()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Called when the Trainer restores."""
        rng.restore(state_dict["rng"])

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Start to listen for the slot's end."""
        self.slot.__enter__()

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Stop listening."""
        self.slot.__exit__()

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """Save and leave where it is time; every rank comes here."""
        if not ranks.anyone(self.slot.due):
            return
        fresh = self.path.with_name(self.path.name + ".new")
        trainer.save_checkpoint(str(fresh))  # waits for all ranks
        if ranks.rank() == 0:
            fresh.replace(self.path)
            next_slot.say(
                f"{next_slot.SAVED}, epoch {trainer.current_epoch}, step {trainer.global_step}"
            )
        ranks.barrier()
        next_slot.leave()
