# SPDX-License-Identifier: Apache-2.0
"""A run's peak of GPU memory, from the driver's accounting of each process on its GPUs."""

from collections.abc import Iterable
from typing import NamedTuple

# Driver and Prolog read one clock; the driver has whole seconds on some releases.
SLACK_S = 1.0


class Use(NamedTuple):
    """One process on a GPU: times in seconds since the epoch, and the most memory it took (MiB).

    ``end_s`` None: it runs.
    """

    pid: int
    start_s: float
    end_s: float | None
    peak_mib: int


class Peak(NamedTuple):
    """``peak_mib`` of the fullest GPU: the peaks of processes that ran together are added, so it is
    never too small. ``alone``: no earlier process was still there."""

    peak_mib: int
    alone: bool


def peak_of(gpus: Iterable[Iterable[Use]], since_s: float, until_s: float) -> Peak | None:
    """The peak of a run that held ``gpus`` from ``since_s`` (its Prolog) to ``until_s``; None where
    no process began in that time."""
    peaks: list[int] = []
    alone = True
    for uses in gpus:
        changes: list[tuple[float, int]] = []
        for use in uses:
            end_s = until_s if use.end_s is None else use.end_s
            if use.start_s < since_s - SLACK_S:
                alone = alone and end_s < since_s
            elif use.start_s <= until_s:
                changes += [(use.start_s, use.peak_mib), (max(end_s, use.start_s), -use.peak_mib)]
        # at the same moment starts count before ends
        changes.sort(key=lambda change: (change[0], -change[1]))
        held = most = 0
        for _, mib in changes:
            held += mib
            most = max(most, held)
        if most:
            peaks.append(most)
    return Peak(max(peaks), alone) if peaks else None
