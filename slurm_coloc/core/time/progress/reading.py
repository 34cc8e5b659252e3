# SPDX-License-Identifier: Apache-2.0
"""What the begin and the end of a log say of how far a training is, as numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from slurm_coloc.core.time.progress import patterns
from slurm_coloc.core.time.progress.patterns import Counter

LINES = 4000  # of the end that are read
FLAGS = frozenset({"last", "ended", "trainer"})  # the fields of Said that are yes or no


class Said(NamedTuple):
    """What a log says; None: nothing. ``epoch``: the last label as written, the first being
    ``first``; ``epochs``: of how many; ``last``: ``epochs`` is the last label's number, not their
    count; ``ended``: the label stands at the end of its epoch. ``exact``: epochs done, with a
    fraction. ``step``, ``steps``: of the epoch where there are labels, else of the counter's own
    length; ``elapsed_s``: since that counter began. ``set_epochs``, ``set_steps``: what the run was
    started with; ``trainer``: by the Hugging Face Trainer, whose bar is of the whole run.
    ``left_s``: the log's own figure for the whole run."""

    epoch: float | None = None
    epochs: float | None = None
    first: float | None = None
    last: bool = False
    ended: bool = False
    exact: float | None = None
    step: float | None = None
    steps: float | None = None
    elapsed_s: float | None = None
    set_epochs: float | None = None
    set_steps: float | None = None
    trainer: bool = False
    left_s: float | None = None


def read(head: str, tail: str, command: str = "") -> Said:
    """``head``: the log's begin, "" where ``tail`` is the whole log; ``command``: the training's
    command line, its words parted by NUL."""
    opening = list(patterns.lines(head or tail))[:LINES]
    found = _Found()
    labels = found.labels
    for text in opening:
        labels.begins(text)
    for number, text in enumerate(list(patterns.lines(tail))[-LINES:]):
        found.see(number, text)
    step, steps, elapsed_s = found.steps()
    given = "\n".join([command, *opening])
    return Said(
        epoch=labels.epoch,
        epochs=labels.epochs,
        first=labels.first,
        last=labels.last,
        ended=labels.ended,
        exact=found.exact,
        step=step,
        steps=steps,
        elapsed_s=elapsed_s,
        set_epochs=patterns.set_epochs(given),
        set_steps=patterns.set_steps(given),
        trainer=patterns.is_trainer(given),
        left_s=found.left_s,
    )


class _Found:
    """What the tail's lines say, one after the other."""

    def __init__(self) -> None:
        self.labels = _Labels()
        self.exact: float | None = None
        self.left_s: float | None = None
        self._counters: dict[float, tuple[int, Counter]] = {}  # by total, the newest last
        self._alone: float | None = None  # a step of nobody knows how many

    def see(self, number: int, text: str) -> None:
        """Take the next line."""
        counter = patterns.counter(text)
        if counter is not None:
            self._count(number, counter)
        elif (alone := patterns.step_alone(text)) is not None:
            self._alone = alone
        exact = patterns.exact_epoch(text)
        if exact is not None:
            self.exact = exact
        else:
            self.labels.see(number, text, counts=counter is not None)
        if (whole_s := patterns.own_time_left(text)) is not None:
            self.left_s = whole_s

    def _count(self, number: int, counter: Counter) -> None:
        _, before = self._counters.pop(counter.total, (0, counter))
        elapsed_s = counter.elapsed_s
        if elapsed_s is not None:
            elapsed_s = max(elapsed_s, before.elapsed_s or 0.0)
        self._counters[counter.total] = number, Counter(counter.done, counter.total, elapsed_s)

    def steps(self) -> tuple[float | None, float | None, float | None]:
        """Done, total and time of the training's counter: of several bars of the one that has run
        longest. One from before the last label is of another epoch."""
        every = list(self._counters.values())
        timed = [one for one in every if one[1].elapsed_s is not None]
        if timed:
            number, chosen = max(timed, key=lambda one: one[1].elapsed_s or 0.0)
        elif every:
            number, chosen = every[-1]
        elif self._alone is not None:
            return self._alone, None, None
        else:
            return None, None, None
        old = self.exact is None and number < self.labels.number
        return 0.0 if old else chosen.done, chosen.total, chosen.elapsed_s


class _Labels:
    """The labels of epochs, line by line."""

    def __init__(self) -> None:
        self.epoch: float | None = None
        self.epochs: float | None = None
        self.first: float | None = None
        self.last = False
        self.ended = False
        self.number = -1  # of the line
        self._table = False
        self._counted = False  # the log's begin has a counter
        self._behind = False  # and its first label stands behind one: at the end of its epoch

    def see(self, number: int, text: str, *, counts: bool) -> None:
        """Take the tail's next line; ``counts``: it has a counter of steps."""
        if self._row(number, text):
            return
        found = patterns.label(text)
        if found is None:
            if self.epoch is not None and patterns.is_rule(text) and self.first == 0:
                self.last = True  # "Epoch 0/24", then a rule: PyTorch's tutorials
            return
        self.number = number
        self.epoch, epochs = found
        self.epochs = epochs or self.epochs
        self.first = self.epoch if self.first is None else min(self.first, self.epoch)
        self.last = self.last or (self.first == 0 and patterns.is_rich(text))
        self.ended = not counts and (self._behind or patterns.has_result(text))

    def _row(self, number: int, text: str) -> bool:
        """Take a row of a table: it stands at the end of its epoch."""
        self._table = self._table or patterns.is_header(text)
        epoch = patterns.row(text) if self._table else None
        if epoch is None:
            return False
        self.number, self.epoch, self.ended = number, epoch, True
        self.first = epoch if self.first is None else min(self.first, epoch)
        return True

    def begins(self, text: str) -> None:
        """Take a line of the log's begin, before the tail is read."""
        self._table = self._table or patterns.is_header(text)
        found, counts = patterns.label(text), patterns.counter(text) is not None
        if found and self.first is None:
            self._behind = self._counted and not counts
        if found and (self.first is None or found[0] < self.first):
            self.first = found[0]
        self._counted = self._counted or counts


def merged(found: Sequence[Said]) -> Said:
    """Of a log in two files, output and errors."""
    values: dict[str, Any] = {}
    for name in Said._fields:
        said = [value for one in found if (value := getattr(one, name)) is not None]
        values[name] = any(said) if name in FLAGS else said[0] if said else None
    return Said(**values)
