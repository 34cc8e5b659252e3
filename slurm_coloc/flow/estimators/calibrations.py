# SPDX-License-Identifier: Apache-2.0
"""Calibrations: a file a GPU type, <stacks_dir>/<type>.toml, that `coloc calibrate` writes.

What a process takes beside its tensors depends on card, driver and libraries: 544 to 1900 MiB were
seen. A type without a file has what is typical for its card in the estimate, and in the bound the
configuration's ``estimate.context_mib``.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from slurm_coloc.config import EstimateConfig
from slurm_coloc.errors import ConfigError
from slurm_coloc.estimate.activity.cards import name_of
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.request import Defaults

SUFFIX = ".toml"
#: A GPU type in a file's name, as in gres.conf or `coloc estimate --gpu`.
TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DEFAULT = Stack(0)
#: MiB that a training takes beside its tensors, as nvidia-smi shows it, by a card's model: A100
#: with timm on a CUDA before 12.2, which loaded all kernels at once; H100 with torch 2.11, CUDA 13
CONTEXT_MIB = {"a100": 1735, "h100": 760}
#: of cards that were not measured: the H100's, for since 12.2 CUDA loads kernels when needed
USUAL_CONTEXT_MIB = 760
#: a choice, over what is above the context: on two consumer cards 9 % of texts and 11 % of
#: recordings were above a bound that 1 % should be above
OTHER_CARD = 0.05
#: the model in a type's name, as NVIDIA names its cards
MODEL = re.compile(r"(?:rtx|gtx) ?[0-9]{4}(?:ti|ada)?|[abhlptv][0-9]{1,4}s?")


class Workspace(BaseModel):
    """[workspace] of cuDNN over the bytes that a convolution reads and writes (ratios)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    forward: float = Field(DEFAULT.forward, ge=0, le=100)
    data: float = Field(DEFAULT.data, ge=0, le=100)
    weight: float = Field(DEFAULT.weight, ge=0, le=100)
    grouped: float = Field(DEFAULT.grouped, ge=0, le=100)


class Calibration(BaseModel):
    """One file. What only people read (driver, torch, how) decides nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    card: str = Field("", max_length=128)  # as NVML names it
    total_mib: int | None = Field(None, ge=64, le=2**24)  # as NVML shows it
    visible_mib: int | None = Field(None, ge=64, le=2**24)  # where a process sees less
    driver: str = Field("", max_length=64)
    cuda: str = Field("", max_length=64)
    torch: str = Field("", max_length=64)
    cudnn: str = Field("", max_length=64)
    measured: str = Field("", max_length=64)  # when, and on which host
    how: str = Field("", max_length=512)
    bare_context_mib: int | None = Field(None, ge=0, le=65536)
    context_mib: int = Field(ge=0, le=65536)
    blas: int = Field(DEFAULT.blas, ge=0, le=2**30)  # bytes: see Stack
    workspace: Workspace = Workspace()

    @property
    def stack(self) -> Stack:
        """What the estimators take."""
        ratios = self.workspace.model_dump()
        return Stack(self.context_mib, blas=self.blas, visible_mib=self.visible_mib, **ratios)

    def is_of(self, gpu_type: str) -> bool:
        """Whether ``gpu_type`` of gres.conf can be this card. As Slurm's own AutoDetect judges it
        (man gres.conf): the type is a part of the name in lower case with underscores."""
        name = self.card.lower().replace(" ", "_")
        return bool(gpu_type) and gpu_type.lower() in name


@dataclass(frozen=True, slots=True)
class Choice:
    """The calibration, "" for none, and the GPU type that an estimate is made for."""

    stack: str = ""
    gpu_type: str = ""

    @property
    def card(self) -> str:
        """The type's name in estimate/activity/cards.py; "" where it is not known."""
        return name_of(self.gpu_type)


@dataclass(frozen=True, slots=True)
class Stacks:
    """The stack of each GPU type. ``default``: of a type that was not calibrated."""

    default: Stack
    by_type: Mapping[str, Calibration]

    def name_of(self, gpu_type: str) -> str:
        """The calibration that counts for a GPU type: that which is named after it; else of the
        cards that have the type's name in their own the one with the largest context. "": none."""
        if gpu_type in self.by_type:
            return gpu_type
        found = [name for name, one in self.by_type.items() if one.is_of(gpu_type)]
        return max(found, key=lambda name: self.by_type[name].context_mib, default="")

    def calibration(self, gpu_type: str) -> Calibration | None:
        """That of ``name_of``."""
        return self.by_type.get(self.name_of(gpu_type))

    def of(self, gpu_type: str) -> Stack:
        """The stack of one type: as calibrated, else with the context that is typical for it, and
        the configured one in the bound."""
        spare = self.spare_mib(gpu_type)
        stack = self.named(self.name_of(gpu_type))
        context = stack.context_mib - spare
        wider = OTHER_CARD if is_other(gpu_type) else 0.0
        return replace(stack, context_mib=context, spare_mib=spare, card=gpu_type, wider=wider)

    def spare_mib(self, gpu_type: str) -> int:
        """MiB that the configured context has above what is typical for a GPU type; 0 where it was
        calibrated, or is not known."""
        typical = typical_context_mib(gpu_type)
        if typical is None or self.name_of(gpu_type):
            return 0
        return max(0, self.default.context_mib - typical)

    def named(self, name: str) -> Stack:
        """The stack of a calibration, "" for none, for no certain card."""
        return self.by_type[name].stack if name else self.default

    def choose(self, gpu_types: Iterable[str | None]) -> Choice:
        """For a job that may get any of ``gpu_types``: the one with the largest context. None: a
        GPU without a type in gres.conf, which may be any that was calibrated."""
        found: list[Choice] = []
        for gpu_type in gpu_types:
            if gpu_type is not None:
                found.append(Choice(self.name_of(gpu_type), gpu_type))
            else:
                found += [Choice(name, name) for name in self.by_type] or [Choice()]
        return max(found, key=self._context, default=Choice())

    def _context(self, one: Choice) -> tuple[int, int]:
        """By what the bound has, then by what is typical."""
        return self.named(one.stack).context_mib, -self.spare_mib(one.gpu_type)


def model_of(gpu_type: str) -> str:
    """The card's model in a GPU type (a100, nvidia_a100-sxm4-80gb, a100_3g.20gb); "" where it names
    no card of NVIDIA's."""
    words = re.split(r"[-_]", gpu_type.lower())
    return next((word for word in words if MODEL.fullmatch(word)), "")


def typical_context_mib(gpu_type: str) -> int | None:
    """MiB of a process's CUDA context and libraries on a GPU type, as one training had them; None
    where the type is not known."""
    model = model_of(gpu_type)
    return CONTEXT_MIB.get(model, USUAL_CONTEXT_MIB) if model else None


def is_other(gpu_type: str) -> bool:
    """Whether the type is a card that no margin was compared on."""
    model = model_of(gpu_type)
    return bool(model) and model not in CONTEXT_MIB


def read_calibration(path: Path) -> Calibration:
    """One file; raises ConfigError that names it and every wrong key."""
    try:
        data = tomllib.loads(path.read_bytes().decode("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as err:
        raise ConfigError(f"{path}: cannot be used: {err}") from err
    try:
        return Calibration.model_validate(data)
    except ValidationError as err:
        lines = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in err.errors()
        )
        raise ConfigError(f"{path}: {lines}") from err


def load_stacks(config: EstimateConfig) -> Stacks:
    """All files of ``stacks_dir``; a folder that is not there holds none. Raises ConfigError."""
    default = Stack(config.context_mib)
    try:
        paths = sorted(p for p in config.stacks_dir.iterdir() if p.suffix == SUFFIX)
    except (FileNotFoundError, NotADirectoryError):
        return Stacks(default, {})
    except OSError as err:
        raise ConfigError(f"{config.stacks_dir}: cannot be read: {err}") from err
    for path in paths:
        if not TYPE.fullmatch(path.stem):
            raise ConfigError(f"{path}: the name is no GPU type")
    return Stacks(default, {path.stem: read_calibration(path) for path in paths})


def defaults_of(config: EstimateConfig, stacks: Stacks) -> Defaults:
    """What the estimates of a text need to know of the site."""
    return Defaults(
        estimator=config.estimator,
        stacks={name: stacks.named(name) for name in ("", *stacks.by_type)},
        optimizer=config.default_optimizer,
        precision=config.default_precision,
        seq_len=config.default_seq_len,
        level=config.level,
    )
