# SPDX-License-Identifier: Apache-2.0
"""What a running training says after its first step: estimate, reservation, present use.

Used by the callbacks beside this file; in a loop of one's own::

    watch = Watch("model.txt", batch_size=32)
    for batch in loader:
        ...
        optimizer.step()
        watch.step()
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from slurm_coloc.errors import ColocError
from slurm_coloc.estimate.api import AUTO, Estimate, TrainingOptions, estimate
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.reading import read_summary
from slurm_coloc.estimate.replay.stack import Stack

MIB = 2**20


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Watch:
    """``summary``: the file that --coloc got. ``batch_size``, ``optimizer``, ``precision``: as in
    `coloc estimate`; what is None is the summary's. Only the first step and rank 0 say anything,
    and nothing here ends a training."""

    def __init__(
        self,
        summary: str | Path | None = None,
        *,
        batch_size: int | None = None,
        optimizer: str | None = None,
        precision: str | None = None,
        say: Callable[[str], None] = _say,
    ) -> None:
        self._summary = None if summary is None else str(summary)
        named = {"optimizer": optimizer, "precision": precision}
        self._options = TrainingOptions(
            batch_size=batch_size,
            optimizer=optimizer or "adam",
            precision=precision or "fp32",
            assumed=tuple(name for name, value in named.items() if value is None),
        )
        self._say = say
        self._done = False

    def step(self) -> None:
        """Call it after each optimizer step."""
        if self._done:
            return
        self._done = True
        if os.environ.get("RANK", "0") == "0" and "COLOC_SUMMARIZE" not in os.environ:
            for line in self.lines():
                self._say(f"coloc: {line}")

    def lines(self) -> list[str]:
        """What is said, a line each."""
        return [self._estimate(), _reservation(), _use()]

    def _estimate(self) -> str:
        if self._summary is None:
            return "estimate: none, for no summary was named (coloc summarize writes one)"
        try:
            found = estimate(
                parse_summary(read_summary(self._summary)),
                self._options,
                stack=Stack(0),
                estimator=AUTO,
            )
        except ColocError as err:
            return f"estimate: none: {err.message}"
        return _figure(found)


def _figure(found: Estimate) -> str:
    if found.memory_mib is None:
        return f"estimate: none: {found.reason}"
    return (
        f"estimate: {found.memory_mib} MiB for tensors, at most {found.upper_mib}"
        f" ({found.name}); CUDA's context comes on top"
    )


def _reservation() -> str:
    shards = os.environ.get("COLOC_SHARDS")
    if shards:
        return f"reservation: {shards} shards of this GPU"
    return "reservation: none by slurm-coloc"


def _use() -> str:
    if not torch.cuda.is_available():
        return "in use: not known, the training runs without CUDA"
    reserved = torch.cuda.memory_reserved() // MIB
    peak = torch.cuda.max_memory_reserved() // MIB
    allocated = torch.cuda.max_memory_allocated() // MIB
    try:
        free, total = (part // MIB for part in torch.cuda.mem_get_info())
        card = f"; the GPU has {total} MiB, of which {free} are free"
    except RuntimeError:
        card = ""
    return (
        f"in use: {reserved} MiB taken by PyTorch after the first step, {peak} at most,"
        f" {allocated} in tensors at most{card}"
    )
