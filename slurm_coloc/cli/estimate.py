# SPDX-License-Identifier: Apache-2.0
"""``coloc estimate``: GPU memory of a training job from its model summary."""

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from pydantic import BaseModel, ConfigDict, Field, InstanceOf, ValidationError
from rich.console import Console
from rich.table import Table

from slurm_coloc.config import Config, load_config
from slurm_coloc.core.decide.optimizers import OPTIMIZERS
from slurm_coloc.core.gpu.cards import GPU_TYPES, shards_of
from slurm_coloc.errors import ColocError, SummaryError, UsageFault
from slurm_coloc.estimate.answer import Answer, Site, answer, error_json
from slurm_coloc.estimate.api import PRECISIONS, TrainingOptions, registry, settled
from slurm_coloc.estimate.reading import read_summary
from slurm_coloc.estimate.replay.allocconf import rules_of
from slurm_coloc.estimate.request import shape_of
from slurm_coloc.flow.estimators.calibrations import Stacks, load_stacks
from slurm_coloc.flow.estimators.networks import provide, require, runnable

DEFAULT_GPU = "a100-40gb"
SAY = partial(typer.echo, err=True)
# A text of 4 MiB can take six characters a byte in JSON.
MAX_REQUEST = 32 * 2**20
Text = InstanceOf[str]  # JSON's lone surrogates included: the parsers refuse them
Count = Annotated[int, Field(ge=1, lt=2**31)]


class Request(BaseModel):
    """One question: a summary by ``path`` or as ``text``, and what is known of the training."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    path: Text | None = None
    text: Text | None = None
    batch_size: Count | None = None
    seq_len: Count | None = None
    input: Text | None = None
    optimizer: Text | None = None
    precision: Text | None = None
    gpu: Text | None = None
    gpus: Count | None = None
    visible_mib: Count | None = None
    world_size: Count | None = None
    zero_stage: Annotated[int, Field(ge=0, le=3)] | None = None
    alloc_conf: Text | None = None
    level: Annotated[float, Field(gt=0, lt=1)] | None = None
    estimator: Text | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What is read once."""

    config: Config
    stacks: Stacks


def _site(setting: Setting, given: Request) -> Site:
    """What configuration, calibration and options say about a GPU. Raises UsageFault for a type
    that is neither known nor calibrated."""
    config, gpu = setting.config, given.gpu or DEFAULT_GPU
    kind, calibrated = GPU_TYPES.get(gpu), setting.stacks.by_type.get(gpu)
    total = calibrated.total_mib if calibrated else None
    total = total or (kind.total_mib if kind else None)
    if total is None:
        names = [*GPU_TYPES, *(name for name in setting.stacks.by_type if name not in GPU_TYPES)]
        raise UsageFault(f"unknown GPU {gpu!r}; known are {', '.join(names)}", "unknown_gpu")
    stack = setting.stacks.of(gpu)
    visible = given.visible_mib or stack.visible_mib
    rules, notes = rules_of(given.alloc_conf or "")
    return Site(
        estimator=config.estimate.estimator,
        stack=replace(stack, allocator=rules, visible_mib=visible, card=gpu),
        shard_mib=config.pool.shard_mib,
        gpu=gpu,
        shards_per_gpu=shards_of(
            min(total, visible or total), config.pool.shard_mib, config.pool.margin_mib
        ),
        notes=notes,
        compute_budget=config.pool.compute_budget if config.pool.size_by_smact else None,
        max_jobs_per_gpu=config.pool.max_jobs_per_gpu,
    )


def _names(config: Config, wanted: str | None) -> tuple[str, ...]:
    """The estimators to call. Raises ConfigError for one that cannot run here."""
    if wanted == "all":
        return runnable(tuple(registry()), SAY)
    name = wanted or config.estimate.estimator
    require(name)
    return (name,)


def _options(config: Config, given: Request) -> TrainingOptions:
    """Options with the site's defaults. Raises UsageFault."""
    return TrainingOptions(
        batch_size=given.batch_size,
        seq_len=given.seq_len,
        shape=shape_of(given.input),
        optimizer=given.optimizer or config.estimate.default_optimizer,
        precision=given.precision or config.estimate.default_precision,
        gpus=given.gpus or 1,
        world_size=given.world_size or 1,
        zero_stage=given.zero_stage or 0,
        default_seq_len=config.estimate.default_seq_len,
        level=given.level or config.estimate.level,
        assumed=tuple(name for name in ("optimizer", "precision") if not getattr(given, name)),
    )


def _answer(setting: Setting, text: str, given: Request) -> Answer:
    return answer(
        text,
        _options(setting.config, given),
        _site(setting, given),
        _names(setting.config, given.estimator),
    )


def _checked(line: bytes) -> Request:
    """One request. Raises UsageFault bad_request for anything but the documented object."""
    try:
        given = Request.model_validate(json.loads(line.decode("utf-8")))
    except ValidationError as err:
        first = err.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the line"
        raise UsageFault(f"{where[:120]}: {first['msg'][:120]}", "bad_request") from None
    except (ValueError, RecursionError) as err:
        raise UsageFault(f"the line is not JSON: {str(err)[:120]}", "bad_request") from None
    if (given.path is None) == (given.text is None):
        raise UsageFault("give either path or text", "bad_request")
    if given.path == "-":
        raise UsageFault("path may not be -", "bad_request")
    return given


def _requests(stream: BinaryIO) -> Iterator[bytes | None]:
    """Lines of the stream; None for one that is too long."""
    while line := stream.readline(MAX_REQUEST):
        if len(line) < MAX_REQUEST or line.endswith(b"\n"):
            yield line
            continue
        while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
            pass
        yield None


def _one_line(setting: Setting, line: bytes | None) -> dict[str, Any]:
    try:
        if line is None:
            raise UsageFault(f"the line has more than {MAX_REQUEST // 2**20} MiB", "bad_request")
        given = _checked(line)
        text = given.text if given.text is not None else read_summary(given.path or "")
        return _answer(setting, text, given).as_json()
    except ColocError as err:
        return error_json(err)


def _many(setting: Setting, name: str) -> None:
    """Answer each line of a file, or of standard input, in order."""
    with ExitStack() as stack:
        try:
            stream = sys.stdin.buffer
            if name != "-":
                stream = stack.enter_context(Path(name).open("rb"))
            for line in _requests(stream):
                sys.stdout.write(json.dumps(_one_line(setting, line)) + "\n")
                sys.stdout.flush()
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as err:
            raise UsageFault(f"{name}: cannot be read: {err}") from None


def _show(setting: Setting, found: Answer, given: Request) -> None:
    """Tables for people on stdout, the talk on stderr."""
    options = settled(found.summary, _options(setting.config, given))
    out, talk = Console(), Console(stderr=True)
    model = found.summary
    out.print(
        f"{model.format}: {model.family}, {model.parameters:,} parameters,"
        f" {len(model.layers)} rows",
        highlight=False,
    )
    table = Table("estimator", "memory MiB", "upper MiB", "ms")
    for item in found.estimates:
        cells = [f"{x:,}" if x is not None else "-" for x in (item.memory_mib, item.upper_mib)]
        mark = " (chosen)" if item is found.chosen and len(found.estimates) > 1 else ""
        table.add_row(f"{item.name} {item.version}{mark}", *cells, f"{item.seconds * 1e3:.1f}")
    out.print(table)
    batch = given.batch_size
    known = model.recording
    recorded = {"optimizer": known and known.optimizer, "precision": known}
    source = {name: " (recorded)" if recorded[name] else " (default)" for name in recorded}
    assumed = [
        f"batch size {batch}" if batch else f"batch size {model.batch_in_text or '?'} (summary)",
        f"optimizer {options.optimizer}" + ("" if given.optimizer else source["optimizer"]),
        f"precision {options.precision}" + ("" if given.precision else source["precision"]),
        _gpu(setting, given),
    ]
    if given.seq_len:
        assumed.append(f"sequence length {options.seq_len}")
    out.print("assumed: " + ", ".join(assumed), highlight=False, soft_wrap=True)
    out.print(_activity(found), highlight=False, soft_wrap=True)
    out.print(f"reservation: {found.reason}", highlight=False, markup=False, soft_wrap=True)
    for note in dict.fromkeys(note for item in found.estimates for note in item.notes):
        talk.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)


def _activity(found: Answer) -> str:
    """How busy the training alone keeps the GPU."""
    one = found.chosen
    if one.smact is None:
        return "activity: not predicted"
    return (
        f"activity alone: SM {one.smact:.2f} ({one.smact_low:.2f} to {one.smact_high:.2f}),"
        f" DRAM {one.dram:.2f}"
    )


def _gpu(setting: Setting, given: Request) -> str:
    """The GPU type, and where its figures are from."""
    name = given.gpu or DEFAULT_GPU
    calibrated = setting.stacks.calibration(name)
    context = f"context {setting.stacks.of(name).context_mib} MiB"
    source = f"calibrated {calibrated.measured}".strip() if calibrated else "not calibrated"
    return f"GPU {name}{'' if given.gpu else ' (default)'}, {context} ({source})"


def _estimate(
    summary: str | None = typer.Argument(None, help="Model summary, or - for standard input."),
    batch_size: int | None = typer.Option(None, min=1, max=2**31 - 1, help="Of one process."),
    seq_len: int | None = typer.Option(None, min=1, max=2**31 - 1, help="Tokens a sample."),
    shape: str | None = typer.Option(
        None, "--input", help="Shape of one sample, for a text without shapes: 3x224x224."
    ),
    optimizer: str | None = typer.Option(None, help=" | ".join(OPTIMIZERS)),
    precision: str | None = typer.Option(None, help=" | ".join(PRECISIONS)),
    gpu: str | None = typer.Option(None, help=f"GPU type [default: {DEFAULT_GPU}]."),
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
    alloc_conf: str | None = typer.Option(
        None, help="The job's PYTORCH_CUDA_ALLOC_CONF, as expandable_segments:True."
    ),
    level: float | None = typer.Option(
        None, min=0.5, max=0.999, help="Probability that the job stays below the upper bound."
    ),
    estimator: str | None = typer.Option(None, help="Name of an estimator, auto, or all."),
    jsonl: str | None = typer.Option(None, help="One request a line from this file, or -."),
    as_json: bool = typer.Option(False, "--json", help="The answer as JSON."),
) -> None:
    """GPU memory of a training job from its model summary (nothing runs, no GPU is needed)."""
    if (summary is None) == (jsonl is None):
        raise UsageFault("give either SUMMARY or --jsonl FILE")
    config = load_config()
    setting = Setting(config, load_stacks(config.estimate))
    provide()
    if jsonl is not None:
        _many(setting, jsonl)
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
        alloc_conf=alloc_conf,
        level=level,
        estimator=estimator,
    )
    try:
        found = _answer(setting, read_summary(summary or ""), given)
    except SummaryError as err:
        if as_json:
            typer.echo(json.dumps(error_json(err)))
        raise
    if as_json:
        typer.echo(json.dumps(found.as_json()))
    else:
        _show(setting, found, given)


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("estimate")(_estimate)
