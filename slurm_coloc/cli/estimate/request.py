# SPDX-License-Identifier: Apache-2.0
"""What ``coloc estimate`` is asked: by options, or as one JSON object a line."""

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

from slurm_coloc.config import Config
from slurm_coloc.core.gpu.cards import GPU_TYPES, shards_of
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.estimate.answer import Answer, Site, answer, error_json
from slurm_coloc.estimate.api import TrainingOptions, registry
from slurm_coloc.estimate.reading import read_summary
from slurm_coloc.estimate.replay.allocconf import rules_of
from slurm_coloc.estimate.request import shape_of, training_of
from slurm_coloc.flow.estimators.calibrations import Stacks
from slurm_coloc.flow.estimators.networks import require, runnable

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
    training: Text | None = None
    alloc_conf: Text | None = None
    level: Annotated[float, Field(gt=0, lt=1)] | None = None
    estimator: Text | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """What is read once."""

    config: Config
    stacks: Stacks


def total_of(setting: Setting, gpu: str) -> int:
    """MiB of a GPU type. Raises UsageFault for one that is neither known nor calibrated."""
    kind, calibrated = GPU_TYPES.get(gpu), setting.stacks.by_type.get(gpu)
    total = calibrated.total_mib if calibrated else None
    total = total or (kind.total_mib if kind else None)
    if total is None:
        names = [*GPU_TYPES, *(name for name in setting.stacks.by_type if name not in GPU_TYPES)]
        raise UsageFault(f"unknown GPU {gpu!r}; known are {', '.join(names)}", "unknown_gpu")
    return total


def site_of(setting: Setting, given: Request) -> Site:
    """What configuration, calibration and options say about a GPU. Raises UsageFault."""
    config, gpu = setting.config, given.gpu or DEFAULT_GPU
    total = total_of(setting, gpu)
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
        card_mib=total if given.gpu and not visible else None,
    )


def names_of(config: Config, wanted: str | None) -> tuple[str, ...]:
    """The estimators to call. Raises ConfigError for one that cannot run here."""
    if wanted == "all":
        return runnable(tuple(registry()), SAY)
    name = wanted or config.estimate.estimator
    require(name)
    return (name,)


def options_of(config: Config, given: Request) -> TrainingOptions:
    """Options with the site's defaults. Raises UsageFault."""
    training = training_of(given.training)
    if given.zero_stage is not None:
        training = training._replace(zero_stage=given.zero_stage)
    return TrainingOptions(
        batch_size=given.batch_size,
        seq_len=given.seq_len,
        shape=shape_of(given.input),
        optimizer=given.optimizer or config.estimate.default_optimizer,
        precision=given.precision or config.estimate.default_precision,
        gpus=given.gpus or 1,
        world_size=given.world_size or 1,
        **training._asdict(),
        default_seq_len=config.estimate.default_seq_len,
        level=given.level or config.estimate.level,
        assumed=tuple(name for name in ("optimizer", "precision") if not getattr(given, name)),
    )


def answered(setting: Setting, text: str, given: Request, *, by_part: bool = False) -> Answer:
    """Raises SummaryError, UsageFault and ConfigError. ``by_part``: with what the memory is for."""
    return answer(
        text,
        replace(options_of(setting.config, given), by_part=by_part),
        site_of(setting, given),
        names_of(setting.config, given.estimator),
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
        return answered(setting, text, given).as_json()
    except ColocError as err:
        return error_json(err)


def many(setting: Setting, name: str) -> None:
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
