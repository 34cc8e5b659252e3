# SPDX-License-Identifier: Apache-2.0
"""The texts of a case: in each format that people have, and recorded. No GPU, no weights' values
but for torchsummary, which runs the model."""

import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Any

import torch
import torchinfo

from estimator.evaluate.texts import KINDS, real_linspace
from estimator.generated.cases import LARGEST, Case, checkpointing
from slurm_coloc.summarize.jobs import Job, Wish, arguments
from slurm_coloc.summarize.making import made

RECORDED, PRINTED, FLAT = "recorded", "print", "torchsummary"
FORMATS = (*KINDS, FLAT, PRINTED)
#: samples that texts show and recordings are made with; answers are for others
SAMPLES = 2
#: parameters up to which torchsummary runs a model
REAL = 30_000_000


class TooLarge(Exception):
    """More parameters than are looked at."""


def texts(case: Case) -> Iterator[tuple[str, str]]:
    """(format, text), the recording last. A format that does not know such a model is left out.
    Raises TooLarge, and what the model raises."""
    with real_linspace(), torch.device("meta"):
        job = case.job()
        elements = sum(one.numel() for one in job.model.parameters())
        if elements > LARGEST:
            raise TooLarge(f"{elements:,} parameters")
        tables = _tables(job, "meta", elements)
    yield from (tables or _tables(case.job(), "cpu", elements)).items()
    yield PRINTED, f"{job.model}\n"
    if elements <= REAL and (text := _flat(case)):
        yield FLAT, text
    wish = Wish(batch_size=SAMPLES, precision=case.precision, seq_len=job.seq_len or None)
    trained = (lambda: checkpointing(case.job())) if case.checkpointed else case.job
    yield RECORDED, made(trained, wish).text


def _tables(job: Job, device: str, elements: int) -> dict[str, str]:
    """torchinfo's; {} where a model reads values, which meta tensors do not have."""
    args, keywords = arguments(job.inputs(SAMPLES))
    given: Any = keywords or list(args)
    found = {}
    for kind, how in KINDS.items():
        try:
            text = torchinfo.summary(
                job.model.train(), input_data=given, mode="train", device=device, verbose=0, **how
            )
        except RuntimeError:
            if device == "meta" and elements <= REAL:
                return {}
            raise
        found[kind] = f"{text}\n"
    return found


def _flat(case: Case) -> str:
    """torchsummary's table of a model with one input of numbers; "" of any other."""
    import torchsummary

    job = case.job()
    args, keywords = arguments(job.inputs(1))
    if keywords or len(args) != 1 or not args[0].is_floating_point():
        return ""
    printed = io.StringIO()
    try:
        with torch.no_grad(), redirect_stdout(printed):
            torchsummary.summary(job.model.eval(), tuple(args[0].shape[1:]), device="cpu")
    except Exception:  # it knows modules with one output alone
        return ""
    return printed.getvalue()


def told(case: Case) -> dict[str, Any]:
    """What a user adds where a text has no shapes: the input's, or the tokens of a sample."""
    with torch.device("meta"), real_linspace():
        args, keywords = arguments(case.job().inputs(1))
    first = next(iter([*args, *keywords.values()]))
    if first.is_floating_point():
        shape = list(first.shape[1:])
        return {"shape": shape} if len(shape) > 1 else {}
    return {"seq_len": int(first.shape[1])}
