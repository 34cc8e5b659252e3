# SPDX-License-Identifier: Apache-2.0
"""One of several data-parallel processes: what it holds beside, or less than, one alone.

Stage 0 is DistributedDataParallel: gradients are copied to buckets that live as long as the model,
the first of 1 MiB, the others of 25 MiB (torch/nn/parallel/distributed.py; with
gradient_as_bucket_view=True the copies are not there, and the figure is too high). Stages 1 to 3
are those of ZeRO (Rajbhandari et al., SC 2020): the optimizer's state, the gradients and the
parameters are divided among the processes. Stage 1 is ZeroRedundancyOptimizer, 2 and 3 are FSDP's
SHARD_GRAD_OP and FULL_SHARD: a unit's gradients are reduced and freed when all of them are there,
and at stage 3 a unit's parameters are gathered when they are needed, with the next one's on their
way.

How a script wraps its modules is in no summary: units are taken to be an eighth of the parameters.
NCCL's own buffers are not the allocator's. DDP's buckets were compared with what PyTorch allocates
on the CPU (`python -m estimator.evaluate ddp`), the rest with nothing.

DataParallel is one process with several GPUs, the first of which is the fullest: ``replicated``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from slurm_coloc.estimate.replay.recording import Event, Numbered, Recording

MIB = 2**20
FIRST_BUCKET, BUCKET = MIB, 25 * MIB
#: bytes of gradients that DataParallel adds at a time (torch/nn/parallel/comm.py)
CHUNK = 10 * MIB
UNITS = 8  #: FSDP units of a model: an assumption, blocks of Transformers are 12 and more


@dataclass(frozen=True, slots=True)
class Ranks:
    """``count`` data-parallel processes, ``stage`` 0 to 3."""

    count: int = 1
    stage: int = 0

    def own(self, sizes: Sequence[int]) -> list[int]:
        """The part of each tensor whose optimizer state this process keeps."""
        if self.stage == 0:
            return list(sizes)
        return [-(-size // self.count) for size in sizes]


ALONE = Ranks()


def buckets(sizes: Sequence[int]) -> list[int]:
    """DDP's buckets for gradients of these sizes: in reverse order, as backward makes them; a
    bucket is closed when it holds its limit or more."""
    found: list[int] = []
    now, limit = 0, FIRST_BUCKET
    for size in reversed(sizes):
        now += size
        if now >= limit:
            found.append(now)
            now, limit = 0, BUCKET
    return [*found, now] if now else found


def spread(step: Recording, ranks: Ranks) -> Recording:
    """The step of one of ``ranks``."""
    if ranks.count == 1:
        return step
    if ranks.stage < 2:
        return replace(step, constants=(*step.constants, *buckets(step.parameters)))
    shards = ranks.own(step.parameters)
    unit = max(sum(step.parameters) // UNITS, max(step.parameters, default=0))
    if ranks.stage == 2:
        held: tuple[int, ...] = (*step.parameters, *shards)  # the whole ones, and the shard's own
    else:
        held = (*shards, *([unit, unit] if unit else []))
    events, kept = _reduced(step, unit, ranks.count)
    return replace(step, parameters=held, constants=(*step.constants, *kept), events=tuple(events))


def _reduced(step: Recording, unit: int, count: int) -> tuple[list[Event], list[int]]:
    """Events in which gradients go unit by unit, and the shards that stay of them."""
    events: list[Event] = []
    waiting: list[int] = []
    kept: list[int] = []
    made = held = 0
    for event in step.events:
        if isinstance(event, int) and event < 0 and -1 - event in step.gradients:
            continue
        events.append(event)
        if not isinstance(event, int) or event < 0:
            continue
        if made in step.gradients:
            waiting.append(made)
            held += event
            kept.append(-(-event // count))
        made += 1
        if held >= unit:
            events += [-1 - index for index in waiting]
            waiting, held = [], 0
    return [*events, *(-1 - index for index in waiting)], kept


def replicated(step: Recording, count: int, apart: bool) -> Recording:
    """What DataParallel over ``count`` GPUs allocates on the first (torch/nn/parallel: replicate,
    gather, comm.reduce_add_coalesced). ``step``: of its own share of the batch. ``apart``: the loss
    is computed after the model, on what was gathered, and not by each replica.

    The replica of the first GPU has the model's own parameters. The outputs of all are gathered
    there, and its own are dropped. Gradients of replicas wait until the backward is over: then the
    sums come, chunk by chunk, and the replica's go.
    """
    loop = _Between()
    left = step.left
    sizes = [event for event in step.events if isinstance(event, int) and event >= 0]
    first, beside = min(step.gradients, default=-1), list[int]()
    for event in step.events:
        made = loop.play(event)
        if left and made == left[-1]:
            for index in left:
                loop.new(count * sizes[index])
                loop.free(loop.now[index])
            # Log-softmax, its gradient and that of the output, of the other shares.
            shares = [(count - 1) * sizes[index] for index in left] * 3 if apart else []
            beside = [loop.new(size) for size in shares if size]
        if made == first:
            for index in beside:
                loop.free(index)
    gradients = []
    for chunk in _chunks(step.parameters):
        flat = loop.new(sum(chunk)) if len(chunk) > 1 else None
        gradients.append(loop.new(sum(chunk)))
        if flat is not None:
            loop.free(flat)
    for index in step.gradients:
        loop.free(loop.now[index])
    return replace(step, events=tuple(loop.events), gradients=frozenset(gradients))


class _Between(Numbered):
    """Events of a step with others between them. ``now``: numbers of its allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.now: list[int] = []

    def play(self, event: Event) -> int:
        """The number that an allocation has in the step; -1 for what is none."""
        if not isinstance(event, int):
            self.events.append(event)
        elif event < 0:
            self.free(self.now[-1 - event])
        else:
            self.now.append(self.new(event))
            return len(self.now) - 1
        return -1


def _chunks(sizes: Sequence[int]) -> list[list[int]]:
    """Gradients that are summed at once: up to CHUNK bytes, or one larger."""
    found: list[list[int]] = []
    held = 0
    for size in sizes:
        if not found or (held and held + size > CHUNK):
            found.append([])
            held = 0
        found[-1].append(size)
        held += size
    return found
