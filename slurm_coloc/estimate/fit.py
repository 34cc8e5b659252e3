# SPDX-License-Identifier: Apache-2.0
"""Which GPUs and MIG devices a training fits, and the largest batch that fits each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from slurm_coloc.estimate.api import Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary

#: batches that are looked at, of one process
MOST = 2**20


class Fit(StrEnum):
    """Whether a training with the asked batch fits."""

    YES = "yes"  # its bound does
    PERHAPS = "perhaps"  # the estimate does, the bound does not
    NO = "no"
    UNKNOWN = "-"  # no batch is named, or there is no figure for it


@dataclass(frozen=True, slots=True)
class Device:
    """``mib``: what one process can take there, with its context."""

    name: str
    mib: int
    stack: Stack


@dataclass(frozen=True, slots=True)
class Fitted:
    """``largest``: the largest batch whose bound fits; 0 where none does."""

    device: Device
    fits: Fit
    largest: int

    def as_json(self) -> dict[str, object]:
        """Of `coloc estimate --fit --json`."""
        return {
            "gpu": self.device.name,
            "mib": self.device.mib,
            "fits": str(self.fits),
            "largest_batch": self.largest,
        }


def fitted(
    summary: Summary, options: TrainingOptions, devices: Sequence[Device], name: str
) -> list[Fitted]:
    """For each of ``devices`` in their order, by the estimator ``name``. Some hundred estimates at
    most: those of devices with the same context are shared."""
    known: dict[Stack, Bounds] = {}
    batch = options.batch_size or summary.batch_in_text
    found = []
    for device in devices:
        plain = replace(device.stack, visible_mib=None, card="")
        if plain not in known:
            known[plain] = Bounds(_by_batch(summary, options, plain, name))
        bounds = known[plain]
        narrow = _by_batch(summary, options, replace(plain, visible_mib=device.mib), name)
        fits = _fits(bounds, narrow, batch, device.mib) if batch else Fit.UNKNOWN
        found.append(Fitted(device, fits, bounds.largest(device.mib)))
    return found


ByBatch = Callable[[int], Estimate]


def _by_batch(summary: Summary, options: TrainingOptions, stack: Stack, name: str) -> ByBatch:
    """The estimate by batch."""
    return lambda batch: estimate(
        summary, replace(options, batch_size=batch), stack=stack, estimator=name
    )


def _fits(bounds: "Bounds", narrow: ByBatch, batch: int, mib: int) -> Fit:
    upper = bounds.of(batch)
    if upper is None:
        return Fit.UNKNOWN
    if upper <= mib:
        return Fit.YES
    # Where less memory is seen the allocator gives back what it keeps before it fails.
    return Fit.NO if narrow(batch).memory_mib is None else Fit.PERHAPS


class Bounds:
    """Bounds (MiB) by batch, remembered; they rise with it."""

    def __init__(self, by_batch: ByBatch) -> None:
        self._by_batch = by_batch
        self._known: dict[int, int | None] = {}

    def of(self, batch: int) -> int | None:
        """None where there is no figure."""
        if batch not in self._known:
            self._known[batch] = self._by_batch(batch).upper_mib
        return self._known[batch]

    def largest(self, mib: int) -> int:
        """The largest batch whose bound is ``mib`` or less; 0 where there is none."""
        low, high = 0, 1
        while (upper := self.of(high)) is not None and upper <= mib:
            if high >= MOST:
                return high
            low, high = high, high * 2
        if upper is None and low == 0:
            return 0
        straight = True
        while high - low > 1:
            middle = self._between(low, high, mib) if straight else (low + high) // 2
            straight = not straight
            upper = self.of(middle)
            if upper is not None and upper <= mib:
                low = middle
            else:
                high = middle
        return low

    def _between(self, low: int, high: int, mib: int) -> int:
        """Where a line through both meets ``mib``: memory is nearly linear in the batch."""
        first, last = (self.of(low) if low else None), self.of(high)
        if first is None or last is None or last <= first:
            return (low + high) // 2
        guess = low + (high - low) * (mib - first) // (last - first)
        return min(max(guess, low + 1), high - 1)
