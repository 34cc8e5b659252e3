# SPDX-License-Identifier: Apache-2.0
"""Draws models, records one training step of each without a GPU, and keeps what training needs.

A file of the cache holds one model: its summary (the rows that torchinfo would print), and its
recorded step at a batch of PRIME samples. Every tensor is a multiple of the batch or does not know
of it, and no width is as large as that prime: what it divides belongs to the batch, so any other
batch follows (``at``). Large ones may lack the padding of their last row (the bias of attention,
aligned by PyTorch). Labels are made when rows are made, see rows.py.
"""

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from estimator.evaluate.recorded import prepared
from estimator.gpumemnet.models import cnn, mlp, transformer
from estimator.gpumemnet.models.drawn import Drawn
from estimator.gpumemnet.models.published import named
from estimator.measured import family as timm_family
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.recording import Event, Recording, Scratch
from slurm_coloc.estimate.summary import Layer, Summary
from slurm_coloc.summarize.fake.mode import fake
from slurm_coloc.summarize.step import record

DRAW: dict[str, Callable[[Random], Drawn]] = {
    "mlp": mlp.draw, "cnn": cnn.draw, "transformer": transformer.draw,
}  # fmt: skip


PRIME = 65537
PADDING = 256  #: bytes that a tensor of the whole batch may lack


@dataclass(frozen=True)
class Collected:
    """One model of the cache. ``group``: rows of one group are never on both sides of a split.
    ``step``: at a batch of PRIME."""

    group: str
    summary: Summary
    step: Recording
    words: dict[str, Any]


def at(step: Recording, batch: int) -> Recording:
    """The recorded step at another batch size."""

    own = {*step.parameters, *step.constants}

    def size(x: int) -> int:
        whole, rest = divmod(x, PRIME)
        if not rest:
            return whole * batch
        # Multiples of 64 KiB below PADDING * PRIME come as near to a multiple of the prime.
        if PRIME - rest < PADDING and whole >= PADDING and x not in own:
            return (whole + 1) * batch - (PRIME - rest)
        return x

    events: list[Event] = []
    for event in step.events:
        if isinstance(event, Scratch):
            events.append(event._replace(read=size(event.read), written=size(event.written)))
        else:
            events.append(size(event) if event > 0 else event)
    inputs = tuple(size(x) for x in step.inputs)
    return Recording(step.parameters, step.constants, inputs, tuple(events), step.gradients)


def watch(model: nn.Module, rows: list[Layer]) -> None:
    """Hooks that note a row for each module that runs and has no module below it that runs."""
    seen: set[int] = set()
    inside: list[list[int]] = []

    def enter(module: nn.Module, given: Any) -> None:
        if inside:
            inside[-1][0] += 1
        inside.append([0])

    def leave(module: nn.Module, given: Any, made: Any) -> None:
        (below,) = inside.pop()
        if below:
            return
        fresh = [p for p in module.parameters() if id(p) not in seen]
        seen.update(id(p) for p in fresh)
        kernel = getattr(module, "kernel_size", None)
        elements = kernel[0] * kernel[1] if isinstance(kernel, tuple) and len(kernel) == 2 else 0
        rows.append(
            Layer(
                kind=type(module).__name__,
                depth=1,
                inputs=_shapes(given),
                outputs=_shapes(made),
                parameters=sum(p.numel() for p in fresh),
                attributes=(("kernel_elements", elements),) if elements else (),
            )
        )

    for module in model.modules():
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)


def _shapes(tensors: Any) -> tuple[tuple[int, ...], ...]:
    """Of one sample: the leading dimension is divided by the batch."""
    found = [x for x in tree_leaves(tensors) if isinstance(x, torch.Tensor) and x.dim()]
    return tuple((max(1, x.shape[0] // PRIME), *x.shape[1:]) for x in found)


def kept(drawn: Drawn, group: str) -> Collected:
    """Record a model."""
    rows: list[Layer] = []
    with fake():
        model = drawn.make().train()
        watch(model, rows)
        inputs = drawn.inputs(PRIME)
        step = record(model, inputs, lambda made: drawn.loss(made, PRIME))
        total = sum(p.numel() for p in model.parameters())
    summary = Summary("torchinfo", drawn.family, total, total, tuple(rows))
    return Collected(group, summary, step, drawn.words)


def published(cache: Path, texts: Path, seconds: float) -> int:
    """Record the timm models whose torchinfo text lies in ``texts`` as NAME.full: their rows are
    those of the text, for that is what is there when an estimate is asked."""
    prepared()
    begin, made = time.monotonic(), 0
    for text in sorted(texts.glob("*.full")):
        summary = parse_summary(text.read_text(encoding="utf-8"))
        path = cache / f"timm-{summary.family}" / f"{text.stem}.pickle"
        if path.exists() or summary.family not in DRAW:
            continue
        if time.monotonic() - begin > seconds:
            break
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            one = kept(named(text.stem, summary.family), f"timm-{timm_family(text.stem)}")
        except (RuntimeError, ValueError) as err:  # a size that is fixed in the model's code
            print(f"{text.stem}: {type(err).__name__}: {str(err)[:100]}")
            continue
        path.write_bytes(pickle.dumps(replace(one, summary=summary)))
        made += 1
    print(f"{made} published models recorded")
    return 0


def main(cache: Path, family: str, count: int, seconds: float) -> int:
    """Fill ``cache``/family with models 0 to ``count`` - 1, as far as the time allows; what is
    there is kept. Model k of a family is the same on every machine."""
    folder = cache / family
    folder.mkdir(parents=True, exist_ok=True)
    begin, made, failed = time.monotonic(), 0, 0
    for number in range(count):
        path = folder / f"{number:05d}.pickle"
        if path.exists():
            continue
        if time.monotonic() - begin > seconds:
            break
        try:
            one = kept(DRAW[family](Random(f"{family} {number}")), f"{family}-{number}")
        except (RuntimeError, ValueError) as err:  # a draw that no image of that size fits through
            failed += 1
            print(f"{family} {number}: {type(err).__name__}: {str(err)[:100]}")
            continue
        partial = path.with_suffix(".part")
        partial.write_bytes(pickle.dumps(one))
        partial.rename(path)
        made += 1
    took = time.monotonic() - begin
    print(f"{family}: {made} models recorded, {failed} not possible, {took:.0f} s; {folder}")
    return 0
