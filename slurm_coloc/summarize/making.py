# SPDX-License-Identifier: Apache-2.0
"""From a job to the text that --coloc wants: the table for people and the block."""

from __future__ import annotations

import gc
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.block.text import FAMILIES, block
from slurm_coloc.estimate.block.traced import Traced
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.summarize.cuda.devices import OnCpu
from slurm_coloc.summarize.fake.mode import fake
from slurm_coloc.summarize.jobs import Job, Wish, arguments
from slurm_coloc.summarize.rows import Rows
from slurm_coloc.summarize.sized import Facts, Taken, traced
from slurm_coloc.summarize.step import record, tensors
from slurm_coloc.summarize.table import shown

BATCH = 32
#: bytes after compression that the SPANK plugin forwards at most (spank/coloc.h)
FORWARDED = 65536 // 4 * 3


@dataclass(frozen=True, slots=True)
class Made:
    """The text, the recording in it, and what a person should know."""

    text: str
    recording: Traced
    notes: tuple[str, ...] = ()


def made(job_of: Callable[[], Job], wish: Wish) -> Made:
    """Record the job's step at two batch sizes and print it. ``job_of`` is called inside the mode
    that makes all tensors fake. Raises UsageFault and whatever the user's code raises."""
    torch.manual_seed(0)
    with _uncollected(), fake(), OnCpu():
        job = job_of()
        batch = wish.batch_size or job.batch_size or BATCH
        model = job.model.train()
        if wish.precision == "bf16":
            model = model.to(torch.bfloat16)
        rows = Rows(model, whole=wish.precision == "amp")
        first = _taken(job, model, batch, wish.precision, rows)
        second = _second(job, model, batch * 2, wish.precision)
        if first.step.events and not first.step.gradients:
            raise UsageFault("no parameter of the model got a gradient", "no_gradients")
        facts = Facts(
            batch=batch,
            precision=wish.precision,
            optimizer=wish.optimizer or job.optimizer,
            seq_len=job.seq_len or wish.seq_len or 0,
            torch=torch.__version__,
            elements=sum(p.numel() for p in model.parameters()),
            trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
        )
        text = shown(model, rows, first.step.inputs)
    return finished([text], first, second, facts)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No garbage is collected inside: torch alone is half a million objects to look through, again
    and again, and what is made here has no numbers."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _batch(job: Job, size: int, precision: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    args, keywords = arguments(job.inputs(size))
    if precision != "bf16":
        return args, keywords

    def half(x: Any) -> Any:
        floats = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.to(torch.bfloat16) if floats else x

    return tuple(map(half, args)), {key: half(value) for key, value in keywords.items()}


def _taken(
    job: Job, model: torch.nn.Module, size: int, precision: str, rows: Rows | None = None
) -> Taken:
    args, keywords = _batch(job, size, precision)
    step = record(model, args, job.loss, keywords=keywords, precision=precision, rows=rows)
    if not any(x.dim() for x in tensors(args, keywords)):
        raise UsageFault("the inputs hold no tensor", "no_inputs")
    return Taken(size, step)


def _second(job: Job, model: torch.nn.Module, size: int, precision: str) -> Taken | None:
    """At another size; None where the model refuses it."""
    try:
        return _taken(job, model, size, precision)
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError):
        return None


def finished(tables: Sequence[str], first: Taken, second: Taken | None, facts: Facts) -> Made:
    """Tables and block as one text that can be forwarded."""
    notes: list[str] = []
    tables = [shown for shown in tables if _readable(shown)]
    summary = parse_summary("\n".join(tables)) if tables else None
    # A colocd of an older release knows these families of recordings alone.
    family = summary.family if summary and summary.family in FAMILIES else "other"
    facts = replace(facts, family=family, models=summary.models if summary else 1)
    recording = traced(first, second, facts)
    if not recording.scales:
        notes.append(
            f"another batch size than {facts.batch} makes another step: the recording answers for"
            " that one only"
        )
    text = "\n".join([*tables, block(recording)])
    if packed(text) > FORWARDED:
        notes.append("the table is left out: with it sbatch could not forward the text")
        text = block(recording)
    if packed(text) > FORWARDED:
        raise UsageFault("the step is too long to be forwarded by sbatch", "too_large")
    return Made(text, recording, tuple(notes))


def packed(text: str) -> int:
    """Bytes as the SPANK plugin compresses the text."""
    return len(zlib.compress(text.encode(), 9))


def _readable(text: str) -> bool:
    try:
        parse_summary(text)
    except SummaryError:
        return False
    return True
