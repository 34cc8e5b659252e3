# SPDX-License-Identifier: Apache-2.0
"""The helper for a plain training loop: restores, counts, saves, and leaves in time."""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from slurm_coloc.checkpoint import files, next_slot, ranks, rng
from slurm_coloc.checkpoint.slot import Slot

VERSION = 1


class Checkpointer:
    """Keeps ``parts`` (whatever has state_dict and load_state_dict: models, optimizers, schedulers,
    scalers) in the file ``path``.

    As a context it restores the newest good checkpoint. ``step()`` after each optimizer step: when
    the slot ends, all ranks save at the same step and the job asks to go on. ``every_s``: save so
    often besides (None: only then). ``agree_every``: steps between two questions to the other ranks
    whether one of them was told to stop. ``also``: see Slot.

    A training goes on as if it had not been cut, bit for bit where its operations are
    deterministic: the states of all random numbers are kept, and an epoch's order of batches is
    drawn again as it was. Batches that were done are read again and passed over.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        every_s: float | None = None,
        agree_every: int = 1,
        also: tuple[str, ...] = (),
        **parts: Any,
    ) -> None:
        self.path = Path(path)
        self.extra: dict[str, Any] = {}
        self.epoch = 0  # the present one
        self.batch = 0  # batches of it that are done
        self.steps = 0  # in all
        self.restored = False  # whether this run goes on where another was cut
        self.slot = Slot(also=also)
        self._parts = parts
        self._every_s = every_s
        self._agree_every = max(1, agree_every)
        self._saved_s = time.monotonic()
        self._epoch_rng: dict[str, Any] | None = None  # before this epoch's first batch
        self._own: Any = None  # generators of the loader then
        self._resume_rng: rng.States | None = None  # where the last run was cut

    def __enter__(self) -> "Checkpointer":
        self.slot.__enter__()
        self._restore()
        return self

    def __exit__(self, *error: object) -> None:
        self.slot.__exit__(*error)

    # the loop

    def epochs(self, count: int) -> Iterator[int]:
        """The epochs from the one that was cut on."""
        while self.epoch < count:
            yield self.epoch
            self.epoch += 1
            self.batch = 0
            self._epoch_rng = None
            self._settle()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """The batches of this epoch that are not done. Use it for one loader an epoch."""
        done, resume = self.batch, self._resume_rng
        own = rng.generators(loader)
        if done and self._epoch_rng is not None:
            rng.restore(self._epoch_rng)
            for generator, state in zip(own, self._own or (), strict=False):
                generator.set_state(state)
        else:
            self._epoch_rng = rng.states()
            self._own = [generator.get_state() for generator in own]
        batches = iter(loader)
        for _ in range(done):
            next(batches, None)
        if done and resume is not None:
            rng.restore(resume)  # what the next batch draws comes after what the cut run drew
        for batch in batches:
            self.batch += 1
            yield batch
        self._settle()

    def step(self) -> None:
        """A step is done: save where it is time, and leave where the slot ends (SystemExit)."""
        self.steps += 1
        self._settle()
        if self.should_stop():
            self.save()
            next_slot.leave()
        if self._every_s is not None and time.monotonic() - self._saved_s >= self._every_s:
            self.save()

    def should_stop(self) -> bool:
        """Whether the slot ends, for a loop that saves in its own way; the same on every rank, so
        every rank must ask at the same steps."""
        if ranks.size() > 1 and self.steps % self._agree_every:
            return False
        return ranks.anyone(self.slot.due)

    def _settle(self) -> None:
        """The restored random states are in use now and are not restored again."""
        self._resume_rng = None

    # the file

    def save(self) -> None:
        """Save now; every rank calls it. Rank 0 writes, the others wait. Raises CheckpointError."""
        mine = {"rng": rng.states(), "epoch_rng": self._epoch_rng, "generators": self._own}
        each = ranks.gathered(mine)
        if ranks.rank() == 0:
            files.save(self.path, self._state(each))
            next_slot.say(f"{next_slot.SAVED}, epoch {self.epoch}, step {self.steps}")
        ranks.barrier()
        self._saved_s = time.monotonic()

    def _state(self, each: list[Any]) -> dict[str, Any]:
        return {
            "version": VERSION,
            "epoch": self.epoch,
            "batch": self.batch,
            "steps": self.steps,
            "extra": self.extra,
            "ranks": each,
            "parts": {name: part.state_dict() for name, part in self._parts.items()},
        }

    def _restore(self) -> None:
        state = files.load(self.path)
        if state is None:
            return
        if state["version"] != VERSION or set(state["parts"]) != set(self._parts):
            raise files.CheckpointError(
                f"{self.path}: of another program: {sorted(state['parts'])}"
            )
        self.restored = True
        for name, part in self._parts.items():
            part.load_state_dict(state["parts"][name])
        self.epoch, self.batch = state["epoch"], state["batch"]
        self.steps, self.extra = state["steps"], state["extra"]
        # Another number of processes than before has other random numbers anyway.
        mine = state["ranks"][ranks.rank() % len(state["ranks"])]
        self._epoch_rng, self._own = mine["epoch_rng"], mine["generators"]
        self._resume_rng = mine["rng"]
        rng.restore(mine["rng"])
