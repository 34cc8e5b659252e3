# SPDX-License-Identifier: Apache-2.0
"""How far a run is, from one reading of its log and what the readings before it said."""

from typing import NamedTuple

from slurm_coloc.core.time.progress.reading import Said


class Place(NamedTuple):
    """``done``: of the run, 0 to 1; ``epoch``: epochs done, with a fraction, of ``epochs``;
    ``cycle``: the part of the run that an epoch is. None: not known."""

    done: float | None = None
    epoch: float | None = None
    epochs: float | None = None
    cycle: float | None = None


class Places:
    """One run's, reading by reading."""

    def __init__(self) -> None:
        self._again = 0  # times that a counter without labels began again
        self._step: float | None = None
        self._steps: float | None = None
        self._longest_s = 0.0  # of the counter that is followed

    def place(self, said: Said) -> Place:
        """Take the next reading."""
        said = self._followed(said)
        self._count_again(said)
        if said.exact is not None:
            return _of_trainer(said)
        epoch, epochs = self._epochs(said)
        if epoch is not None:
            cycle = 1 / epochs if epochs else None
            return Place(min(1.0, epoch / epochs) if epochs else None, epoch, epochs, cycle)
        if said.step is None:
            return Place(epochs=epochs)
        if said.steps:
            # Without any word of an epoch the counter is of the whole run, unless the run was told
            # how many epochs to take: then it may be of one of them.
            several = (epochs or 1) > 1
            whole = said.trainer or not several
            cycle = 1 / epochs if epochs and said.trainer else None
            return Place(said.step / said.steps if whole else None, None, epochs, cycle)
        return Place(min(1.0, said.step / said.set_steps) if said.set_steps else None)

    def _followed(self, said: Said) -> Said:
        """Without the counter, where it is a shorter one than the training's: a validation's."""
        if said.elapsed_s is None or said.steps is None or self._steps is None:
            self._longest_s = max(self._longest_s, said.elapsed_s or 0.0)
            return said
        if said.steps != self._steps and said.elapsed_s < self._longest_s:
            return said._replace(step=self._step, steps=self._steps)
        self._longest_s = max(self._longest_s, said.elapsed_s)
        return said

    def _count_again(self, said: Said) -> None:
        if said.epoch is None and said.exact is None and said.step is not None:
            same = said.steps is not None and said.steps == self._steps
            if same and self._step is not None and said.step < self._step:
                self._again += 1
        self._step, self._steps = said.step, said.steps

    def _epochs(self, said: Said) -> tuple[float | None, float | None]:
        """Epochs done, with a fraction, and how many there are."""
        part = min(1.0, said.step / said.steps) if said.step is not None and said.steps else 0.0
        if said.epoch is not None:
            base = 0.0 if said.first == 0 else 1.0
            done = max(0.0, said.epoch - base) + (1.0 if said.ended else 0.0) + part
            return done, _total(said)
        if self._again:
            return self._again + part, said.set_epochs
        return None, said.set_epochs


def _of_trainer(said: Said) -> Place:
    """Of the Hugging Face Trainer: its bar is of the whole run, its dictionaries come behind."""
    exact, epochs = said.exact, said.set_epochs
    if said.step is None or not said.steps:
        done = min(1.0, exact / epochs) if exact is not None and epochs else None
        return Place(done, exact, epochs, 1 / epochs if epochs else None)
    done = said.step / said.steps
    if epochs:
        return Place(done, done * epochs, epochs, 1 / epochs)
    return Place(done, exact, None, done / exact if exact and done else None)


def _total(said: Said) -> float | None:
    """Of how many epochs the labels are."""
    if said.epochs is None:
        return said.set_epochs
    if said.first == 0:
        if said.set_epochs in (said.epochs, said.epochs + 1):
            return said.set_epochs
        return said.epochs + 1 if said.last else said.epochs
    return said.epochs
