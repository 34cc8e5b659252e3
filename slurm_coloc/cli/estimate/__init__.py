# SPDX-License-Identifier: Apache-2.0
"""``coloc estimate``: GPU memory of a training job from its model summary."""

import json

import typer

from slurm_coloc.cli.estimate.fit import batch_of, fits_of, sizes_of
from slurm_coloc.cli.estimate.request import DEFAULT_GPU, Request, Setting, answered, many
from slurm_coloc.cli.estimate.show import show, show_fit, show_sweep
from slurm_coloc.config import load_config
from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.answer import error_json
from slurm_coloc.estimate.api import PRECISIONS
from slurm_coloc.estimate.reading import read_summary
from slurm_coloc.flow.estimators.calibrations import load_stacks
from slurm_coloc.flow.estimators.networks import provide


def _estimate(
    summary: str | None = typer.Argument(
        None, metavar="SUMMARY", help="Model summary, or - for standard input."
    ),
    batch_size: int | None = typer.Option(None, min=1, max=2**31 - 1, help="Of one process."),
    seq_len: int | None = typer.Option(None, min=1, max=2**31 - 1, help="Tokens a sample."),
    shape: str | None = typer.Option(
        None, "--input", help="Shape of one sample, for a text without shapes: 3x224x224."
    ),
    optimizer: str | None = typer.Option(None, help=" | ".join(OPTIMIZERS)),
    precision: str | None = typer.Option(
        None, help=f"{' | '.join(PRECISIONS)}; amp: autocast, bf16: the model itself."
    ),
    gpu: str | None = typer.Option(None, help=f"GPU type; default: {DEFAULT_GPU}."),
    gpus: int | None = typer.Option(None, min=1, max=1024, help="GPUs of one process."),
    visible_mib: int | None = typer.Option(
        None, min=64, max=2**31 - 1, help="GPU memory that the process sees: a MIG slice, a cap."
    ),
    world_size: int | None = typer.Option(
        None, min=1, max=2**31 - 1, help="Data-parallel processes of the job; this is one of them."
    ),
    zero_stage: int | None = typer.Option(
        None, min=0, max=3, help="What they divide: 0 nothing (DDP), 1 to 3 as ZeRO, FSDP is 3."
    ),
    training: str | None = typer.Option(
        None,
        help="What else it does: accumulate, compile, checkpoint, and one of zero1, zero2, zero3, "
        "fsdp.",
    ),
    alloc_conf: str | None = typer.Option(
        None, help="The job's PYTORCH_CUDA_ALLOC_CONF, as expandable_segments:True."
    ),
    level: float | None = typer.Option(
        None, min=0.5, max=0.999, help="Probability that the job stays below the upper bound."
    ),
    estimator: str | None = typer.Option(None, help="Name of an estimator, auto, or all."),
    jsonl: str | None = typer.Option(None, help="One request a line from this file, or -."),
    fit: bool = typer.Option(
        False, "--fit", help="Which GPUs and MIG devices it fits, and the largest batch on each."
    ),
    batch_sizes: str | None = typer.Option(
        None, help="A line for each of these, as 8,16,32 (one process each)."
    ),
    as_json: bool = typer.Option(False, "--json", help="The answer as JSON."),
) -> None:
    """GPU memory of a training job from its model summary (nothing runs, no GPU is needed)."""
    if (summary is None) == (jsonl is None):
        raise UsageFault("give either SUMMARY or --jsonl FILE")
    if jsonl is not None and (fit or batch_sizes):
        raise UsageFault("--fit and --batch-sizes are for one SUMMARY, not for --jsonl")
    sweep = sizes_of(batch_sizes)
    config = load_config()
    setting = Setting(config, load_stacks(config.estimate))
    provide()
    if jsonl is not None:
        many(setting, jsonl)
        return
    given = Request(
        batch_size=batch_size,
        seq_len=seq_len,
        input=shape,
        optimizer=optimizer,
        precision=precision,
        gpu=gpu,
        gpus=gpus,
        visible_mib=visible_mib,
        world_size=world_size,
        zero_stage=zero_stage,
        training=training,
        alloc_conf=alloc_conf,
        level=level,
        estimator=estimator,
    )
    if sweep and batch_size is None:
        given = given.model_copy(update={"batch_size": sweep[0]})
    try:
        text = read_summary(summary or "")
        found = answered(setting, text, given, by_part=True)
    except SummaryError as err:
        if as_json:
            typer.echo(json.dumps(error_json(err)))
        raise
    swept = [
        (size, answered(setting, text, given.model_copy(update={"batch_size": size})))
        for size in sweep
    ]
    fits = fits_of(setting, found, given) if fit else []
    if as_json:
        body = found.as_json()
        if fit:
            body["fit"] = [one.as_json() for one in fits]
        if sweep:
            body["sweep"] = [{"batch_size": size} | one.as_json()["chosen"] for size, one in swept]
        typer.echo(json.dumps(body))
        return
    show(setting, found, given)
    if sweep:
        show_sweep(swept)
    if fit:
        show_fit(fits, batch_of(found, given))


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("estimate")(_estimate)
