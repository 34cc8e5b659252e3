# SPDX-License-Identifier: Apache-2.0
"""What is known of a script's training while it runs, and its end."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from slurm_coloc.estimate.replay.recording import Recording
from slurm_coloc.summarize.cuda import devices
from slurm_coloc.summarize.fake.mode import fake
from slurm_coloc.summarize.jobs import Wish
from slurm_coloc.summarize.optimizers import name_of
from slurm_coloc.summarize.sized import Facts
from slurm_coloc.summarize.step import Session, tensors

#: samples of the two recordings without fake tensors
FEW = (2, 4)


@dataclass(slots=True)
class Root:
    """A model that the script called itself, with the arguments of its first call."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    keywords: dict[str, Any]
    calls: int = 0


@dataclass(slots=True)
class State:
    """``batch``: samples of the script's own batches, 0 where no loader gave one. ``factor``: this
    process makes batches so many times as large. ``pipe``: where a forked process writes."""

    wish: Wish
    real: bool = False
    batch: int = 0
    factor: int = 1
    pipe: int | None = None
    yields: int = 0
    given: list[torch.Tensor] = field(default_factory=list)
    roots: dict[int, Root] = field(default_factory=dict)
    optimizers: list[Any] = field(default_factory=list)
    stepped: set[int] = field(default_factory=set)
    session: Session | None = None
    mode: Any = None
    modes: ExitStack = field(default_factory=ExitStack)
    doubles: list[torch.Tensor] = field(default_factory=list)
    first: Recording | None = None
    models: list[torch.nn.Module] = field(default_factory=list)
    second: tuple[int, str] | None = None

    def wanted(self, size: int) -> int:
        """Samples that a batch of ``size`` shall have in this process."""
        if self.real:
            return FEW[0] * self.factor
        return (self.wish.batch_size or size) * self.factor

    def begin(self) -> None:
        """From here on tensors are fake, and what is allocated is recorded."""
        if not self.real:
            self.mode = self.modes.enter_context(fake())
        self.session = Session(self.models, self.given)
        self.modes.enter_context(self.session)

    def add(self, module: torch.nn.Module, args: tuple[Any, ...], keywords: dict[str, Any]) -> Root:
        """A model that trains; what it holds was there before the recording."""
        root = Root(module, args, keywords)
        self.roots[id(module)] = root
        self.models.append(module)
        held = [*module.parameters(), *module.buffers()]
        known = {id(x) for x in self.given}
        fresh = [x for x in tensors(args, keywords) if id(x) not in known]
        first = self.session is None
        if first:
            self.given += fresh
            self.begin()
        assert self.session is not None
        self.session.forget(held)
        if first:
            held += self.given
        if self.mode is not None:
            # What operators see of a real tensor is its fake double: the same one for as long as
            # somebody holds it.
            doubles = [self.mode.from_tensor(x) for x in held if not isinstance(x, FakeTensor)]
            self.doubles += doubles
            self.session.forget(doubles)
        return root

    def accumulate(self) -> int:
        """Batches of one optimizer step: calls of the first model, if so many were loaded."""
        first = next(iter(self.roots.values()))
        return first.calls if 1 < first.calls <= self.yields else 1

    def facts(self) -> tuple[Facts, list[str]]:
        """What the block says beside the recording, and notes for people."""
        notes: list[str] = []
        name = self.wish.optimizer or ""
        if not name and self.optimizers:
            name, note = name_of(next(o for o in self.optimizers if id(o) in self.stepped))
            notes += [note] if note else []
        parameters = {id(p): p for m in self.models for p in m.parameters()}.values()
        half = any(p.dtype in (torch.bfloat16, torch.float16) for p in parameters)
        if self.wish.precision != "fp32" and not half and not devices.ENTERED:
            notes.append("the script's own precision was recorded, not that of --precision")
        return (
            Facts(
                batch=self.wish.batch_size or self.batch or self.leading() or 1,
                precision="bf16" if half else "amp" if devices.ENTERED else "fp32",
                optimizer=name,
                accumulate=self.accumulate(),
                seq_len=self._tokens(),
                torch=torch.__version__,
                elements=sum(p.numel() for p in parameters),
                trainable=sum(p.numel() for p in parameters if p.requires_grad),
            ),
            notes,
        )

    def leading(self) -> int:
        """The first dimension that all inputs share, for a script that makes its batches itself; 0
        where they share none."""
        sizes = {int(x.shape[0]) for x in self.given if x.dim()}
        return sizes.pop() if len(sizes) == 1 else 0

    def _tokens(self) -> int:
        """Length of the first input of integers with two dimensions."""
        for x in self.given:
            if x.dim() == 2 and x.dtype in (torch.int64, torch.int32) and x.shape[1] > 1:
                return int(x.shape[1])
        return 0

    def recording(self) -> Recording:
        """Of the first batch of the step."""
        assert self.session is not None
        return self.first or self.session.recording()


def leave(code: int) -> None:
    """End this process: nothing of the user's code may run any more."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
