# SPDX-License-Identifier: Apache-2.0
"""A training loop made of one recorded step: the model, then forward, backward, optimizer, again.

The optimizer makes its state in the first step, and the second finds the memory as the first left
it: two steps are played, a third changes nothing. An epoch's smaller last batch does change the
peak: it leaves other free blocks behind, into which tensors of the next epoch do not fit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from slurm_coloc.estimate.replay.parallel import ALONE, Ranks, spread
from slurm_coloc.estimate.replay.parts import Marks, Part, at_peak, in_mib
from slurm_coloc.estimate.replay.recording import Event, Numbered, Recording, Scratch

STEPS = 2
Sizes = Callable[[Scratch], int]


@dataclass(frozen=True, slots=True)
class Rule:
    """Bytes of an optimizer's tensors over those of the fp32 parameter: ``state`` for each tensor
    that it keeps, ``copies`` of all gradients at once while it steps (PyTorch's foreach kernels).
    ``in_turn``: it steps one parameter after the other (PyTorch's for-loop). ``alone``: tensors of
    each parameter's size that it makes and lets go of before the next parameter. ``own_width``: the
    state is as wide whatever the parameter's type is."""

    state: tuple[float, ...] = ()
    copies: int = 0
    in_turn: bool = False
    alone: int = 0
    own_width: bool = False


# PyTorch's foreach implementations, the default on CUDA: Adam's square roots are a copy of all
# second moments, and SGD adds weight decay, which training with momentum has as a rule, to a copy
# of all gradients (torch/optim/sgd.py: torch._foreach_add). Adafactor keeps rows and columns only;
# it makes the square of a gradient and what it updates with. bitsandbytes' moments are of one byte.
# RMSprop with momentum is taken to have weight decay, too; Adagrad divides a copy of the gradients
# by the roots of its sums; Lion has one moment.
OPTIMIZERS = {
    "sgd": Rule(),
    "sgd-momentum": Rule((1.0,), 1),
    "adam": Rule((1.0, 1.0), 1),
    "adamw": Rule((1.0, 1.0), 1),
    "adafactor": Rule((0.01, 0.01), alone=2),
    "adam8bit": Rule((0.26, 0.26), own_width=True),
    # fused=True, which today's Trainer of transformers sets, keeps no square roots; foreach=False,
    # and transformers' own AdamW of old, those of one parameter at a time.
    "adam-fused": Rule((1.0, 1.0)),
    "adamw-fused": Rule((1.0, 1.0)),
    "adam-for-loop": Rule((1.0, 1.0), in_turn=True),
    "adamw-for-loop": Rule((1.0, 1.0), in_turn=True),
    "rmsprop": Rule((1.0,), 1),
    "rmsprop-momentum": Rule((1.0, 1.0), 2),
    "adagrad": Rule((1.0,), 2),
    "adamax": Rule((1.0, 1.0), 1),
    "nadam": Rule((1.0, 1.0), 1),
    "radam": Rule((1.0, 1.0), 1),
    "lion": Rule((1.0,), 1),
}


def rule_of(optimizer: str, precision: str) -> Rule:
    """The rule for parameters of ``precision``: those of a model in bf16 are half as wide."""
    rule = OPTIMIZERS[optimizer]
    if not rule.own_width or precision != "bf16":
        return rule
    return replace(rule, state=tuple(2 * share for share in rule.state))


class Loop(Numbered):
    """Steps one after another; a convolution's scratch is a workspace that comes and goes.
    ``marks``: what its allocations are for."""

    def __init__(self, workspace: Sizes) -> None:
        super().__init__()
        self._workspace = workspace
        self.marks = Marks()

    @property
    def sizes(self) -> list[int]:
        """The events as allocator.replay takes them: what was scratch has become sizes."""
        return cast("list[int]", self.events)

    def begin(self, part: Part) -> None:
        """What comes next is for ``part``."""
        self.marks.begin(self.count, part)

    def play(
        self,
        events: Sequence[Event],
        before: int = -1,
        kept: int = 0,
        last: int = -1,
        replaced: Sequence[int] = (),
    ) -> list[int | None]:
        """Where each allocation of ``events`` is now; None if it was freed. ``kept``: bytes that
        are taken for ever before the allocation number ``before``. ``replaced``: allocations of
        before that go when the one numbered ``last`` is made."""
        where: list[int | None] = []
        made, number = 0, self.count  # locals: this runs for each event
        out, put, note = self.events, self.events.append, where.append
        for event in events:
            if isinstance(event, int):
                if event >= 0:
                    if made == before:
                        self.marks.scratch.append(number)
                        put(kept)
                        number += 1
                    put(event)
                    note(number)
                    made += 1
                    number += 1
                    if made == last + 1:
                        out.extend(-1 - index for index in replaced)
                elif (held := where[-1 - event]) is not None:
                    put(-1 - held)
                    where[-1 - event] = None
            elif size := self._workspace(event):
                self.marks.scratch.append(number)
                out += (size, -1 - number)
                number += 1
        self.count = number
        return where

    def step_in_turn(self, sizes: Sequence[int]) -> None:
        """Adam's for-loop (torch/optim/adam.py: _single_tensor_adam): a square root, and that over
        its bias correction, which has a name until the next parameter's is there."""
        before = None
        for size in sizes:
            root = self.new(size)
            made = self.new(size)
            self.free(root)
            if before is not None:
                self.free(before)
            before = made
        if before is not None:
            self.free(before)


def training(
    step: Recording,
    optimizer: str,
    workspace: Sizes,
    steps: int = STEPS,
    blas: int = 0,
    ranks: Ranks = ALONE,
    ahead: bool = True,
    rest: Recording | None = None,
    precision: str = "fp32",
) -> Loop:
    """A process that trains, ``sizes`` for allocator.replay. ``blas``: see Stack;
    the forward's thread and autograd's own take one each, which none of them gives back. ``ranks``:
    of how many processes this is one. ``ahead``: a batch comes to the GPU before the last one goes,
    as image pipelines fetch them; a plain loop over a DataLoader lets go of the last one first.
    ``rest``: the step of an epoch's last batch, after which as many steps come as before it.
    ``precision``: of the parameters, as TrainingOptions has it."""
    rule = rule_of(optimizer, precision)
    stepped = ranks.own(step.parameters)
    step = spread(step, ranks)
    epoch = [(step, step.loss)] * steps
    if rest is not None:
        rest = spread(rest, ranks)
        epoch = [*epoch, (rest, rest.loss), *epoch]
    loop = Loop(workspace)
    loop.begin(Part.WEIGHTS)
    for size in step.parameters:
        loop.new(size)
    loop.begin(Part.KEPT)
    for size in step.constants:
        loop.new(size)
    if blas:
        loop.marks.scratch.append(loop.new(blas))
    backward = min(step.gradients, default=-1) if blas else -1
    batch: list[int] = []
    left: list[int] = []
    gradients: list[int] = []
    for number, (one, last) in enumerate(epoch):
        loop.begin(Part.ACTIVATIONS)
        fresh = [loop.new(size) for size in one.inputs] if ahead else []
        for index in batch:
            loop.free(index)
        batch = fresh or [loop.new(size) for size in one.inputs]
        for index in gradients:
            loop.free(index)
        where = loop.play(one.events, -1 if number else backward, blas, last, left)
        gradients = [at for i, at in enumerate(where) if at is not None and i in one.gradients]
        loop.marks.gradients += gradients
        left = [at for i, at in enumerate(where) if at is not None and i not in one.gradients]
        if number == 0:
            loop.begin(Part.STATES)
            for size in stepped:
                for share in rule.state:
                    loop.new(int(size * share))
        loop.begin(Part.STEP)
        for index in [loop.new(size) for size in stepped * rule.copies]:
            loop.free(index)
        for size in stepped if rule.alone else ():
            for index in [loop.new(size) for _ in range(rule.alone)]:
                loop.free(index)
        if rule.in_turn:
            loop.step_in_turn(stepped)
    return loop


def accumulating(step: Recording) -> Recording:
    """A step that finds the gradients of the step before: each new one is added to the old one in
    place and goes at once."""
    events: list[Event] = []
    sizes: list[int] = []
    count = 0
    for event in step.events:
        if isinstance(event, int) and event < 0 and -1 - event in step.gradients:
            continue  # it went when it was added
        events.append(event)
        if isinstance(event, int) and event >= 0:
            if count in step.gradients:
                sizes.append(event)
                events.append(-1 - count)
            count += 1
    return replace(
        step, constants=(*step.constants, *sizes), events=tuple(events), gradients=frozenset()
    )


def parts_of(loop: Loop, memory_mib: int, context_mib: int) -> dict[str, int]:
    """MiB of an estimate of ``memory_mib`` by what they are for: see parts."""
    return in_mib(at_peak(loop.sizes, loop.marks), memory_mib, context_mib)


def lasting(step: Recording, optimizer: str, precision: str = "fp32") -> int:
    """Bytes of the model, its gradients and the optimizer's tensors."""
    rule = rule_of(optimizer, precision)
    return int(sum(step.parameters) * (2 + sum(rule.state) + rule.copies)) + sum(step.constants)
