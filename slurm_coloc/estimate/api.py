# SPDX-License-Identifier: Apache-2.0
"""The registry of the estimators, and the one way to call them.

An estimator is a module of slurm_coloc.estimate.estimators, or of slurm_coloc.estimate.baselines
where it is there for comparison alone, with ESTIMATORS; adding one edits no other file. What no
summary says (optimizer, precision, batch where the text has none) comes as TrainingOptions. On
doubt the answer is no figure, which means a whole GPU, never a small number.
"""

import pkgutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module

from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate import baselines, estimators
from slurm_coloc.estimate.activity.head import predicted, predicted_on
from slurm_coloc.estimate.estimator import PRECISIONS, Estimate, Estimator, TrainingOptions
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.estimate.summary import Summary

__all__ = ["PRECISIONS", "Estimate", "TrainingOptions", "estimate", "estimate_all", "registry"]

AUTO = "auto"  #: the recording of `coloc summarize` where the text has one, else the text
#: For backend:cudaMallocAsync. A choice: the model was never compared with a card, and a public
#: report (pytorch issue 110194) has more taken than with PyTorch's own allocator.
DRIVER_POOL_MARGIN = 1.15
REPLAYED = ("text", "traced")
#: MiB of NCCL's buffers, which the figure does not have. Not measured here: others saw 544 MB on
#: two A100s, 688 on more (nccl issue 964), and half a GiB for a network's buffers (issue 2363).
NCCL_MIB = 1024
#: For ZeRO and FSDP. A choice: their shares were never compared. What DDP adds is known to the byte
#: (`python -m estimator.evaluate ddp`).
ZERO_MARGIN = 1.1
#: Of what is above the context: the margins were fitted in fp32 on an A100. In 16 bits on an H100 7
#: of 74 recordings and 3 of 74 texts were above their bound, by 4 % at most; all are below it so.
HALF_MARGIN = 0.05
#: A choice: torch.compile was never compared. Fused kernels keep less for backward as a rule; where
#: its plan keeps more, or CUDA graphs have a pool of their own, this is for it.
COMPILED_MARGIN = 1.25
LARGEST_MIB = 2**40  # an answer above it is nonsense, not a GPU


@lru_cache(maxsize=1)
def registry() -> dict[str, Estimator]:
    """Every estimator by name."""
    found: dict[str, Estimator] = {}
    for package in (estimators, baselines):
        for info in pkgutil.iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{info.name}")
            estimators_of: tuple[Estimator, ...] = getattr(module, "ESTIMATORS", ())
            found |= {one.name: one for one in estimators_of}
    return dict(sorted(found.items()))


def _resolve(
    summary: Summary, options: TrainingOptions
) -> tuple[TrainingOptions, tuple[str, ...], str]:
    """Options with a batch size, notes on conflicts, and the reason why there is no figure."""
    notes = list(summary.notes)
    stated = summary.batch_in_text
    if options.batch_size is None and stated is None:
        return options, tuple(notes), "no batch size: give --coloc-batch-size"
    if options.batch_size is None:
        options = replace(options, batch_size=min(stated or 1, 2**31 - 1))
        notes.append(f"batch size {stated} taken from the summary")
    elif stated is not None and stated > options.batch_size and _may_be_second(summary, options):
        notes.append(
            f"batch size {options.batch_size} is the second size in the summary: taken for one with"
            f" its {stated} tokens first, which all count"
        )
        options = replace(options, batch_size=stated)
    elif stated is not None and stated != options.batch_size:
        notes.append(f"batch size {options.batch_size} given, {stated} in the summary: given wins")
    return options, (*notes, *_from_recording(summary, options)), ""


def _may_be_second(summary: Summary, options: TrainingOptions) -> bool:
    """Whether the text may have tokens first and the batch second (PyTorch's batch_first=False):
    then what stands first is no batch, and one sample's rows have the whole batch in them."""
    if summary.family not in ("recurrent", "transformer"):
        return False
    first = next((row.outputs[0] for row in summary.layers if row.leaf and row.outputs), ())
    return len(first) == 3 and first[1] == options.batch_size


def settled(summary: Summary, options: TrainingOptions) -> TrainingOptions:
    """``options`` with what nobody named taken from the recording, where there is one."""
    known = summary.recording
    if known is None:
        return options
    if "optimizer" in options.assumed and known.optimizer:
        options = replace(options, optimizer=known.optimizer)
    if "precision" in options.assumed:
        options = replace(options, precision=known.precision)
    return options


def _from_recording(summary: Summary, options: TrainingOptions) -> list[str]:
    known = settled(summary, options)
    return [
        f"{name} {getattr(known, name)} taken from the recording"
        for name in ("optimizer", "precision")
        if getattr(known, name) != getattr(options, name)
    ]


def estimate(
    summary: Summary, options: TrainingOptions, *, stack: Stack, estimator: str = "text"
) -> Estimate:
    """Ask one estimator by name, or AUTO. Raises UsageFault for a name that is not registered."""
    if estimator == AUTO:
        return _best(summary, options, stack)
    chosen = registry().get(estimator)
    if chosen is None:
        known = ", ".join(registry())
        raise UsageFault(f"no estimator is named {estimator!r}; there are {known}", "bad_option")
    begin = time.perf_counter()
    resolved, notes, reason = _resolve(summary, options)
    if not reason and summary.family == "other" and not getattr(chosen, "any_family", False):
        reason = summary.unopened if summary.collapsed else "unknown model family"
    answer = Estimate(reason=reason) if reason else _answer(chosen, summary, resolved, stack)
    return replace(
        answer,
        name=chosen.name,
        version=chosen.version,
        seconds=time.perf_counter() - begin,
        notes=(*notes, *answer.notes),
    )


def _answer(
    chosen: Estimator, summary: Summary, options: TrainingOptions, stack: Stack
) -> Estimate:
    """The estimator's answer, with activity and margins for those that decide."""
    options = settled(summary, options)
    try:
        answer = chosen.estimate(summary, options, stack)
    except (SummaryError, OverflowError) as err:
        return Estimate(reason=str(err))
    except (LookupError, ValueError, ArithmeticError, RecursionError) as err:
        # A defect of an estimator must not become a traceback in a submission. The tests refuse it.
        return Estimate(reason=f"the estimate failed ({type(err).__name__})")
    memory_mib = answer.memory_mib
    if memory_mib is None:
        return answer
    if chosen.name in REPLAYED:
        answer = _active(_less_sure(answer, stack, options), summary, options, stack)
    if memory_mib > LARGEST_MIB:
        reason = "the model is larger than any GPU"
        return replace(answer, memory_mib=None, upper_mib=None, reason=reason)
    return answer


def _active(answer: Estimate, summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
    """``answer`` with the activity of the training alone, if that can be predicted."""
    found = predicted(summary, options, stack.card)
    if found is None:
        return answer
    values = (found.smact, found.low, found.high, found.dram)
    smact, low, high, dram = (round(value, 3) for value in values)
    return replace(answer, smact=smact, smact_low=low, smact_high=high, dram=dram)


def activities(
    summary: Summary, options: TrainingOptions, cards: Iterable[str]
) -> dict[str, float]:
    """SM activity of the training alone by card, of those where it can be predicted."""
    options, _, reason = _resolve(summary, options)
    if reason:
        return {}
    found = predicted_on(summary, settled(summary, options), cards)
    return {card: round(one.smact, 3) for card, one in found.items()}


def _less_sure(answer: Estimate, stack: Stack, options: TrainingOptions) -> Estimate:
    """A wider bound for what is modelled and was never compared, and for NCCL's buffers, which come
    on top."""
    upper, notes = answer.upper_mib or 0, answer.notes
    further = stack.wider + (HALF_MARGIN if options.precision != "fp32" else 0.0)
    upper += int(further * max(0, (answer.memory_mib or 0) - stack.context_mib))
    if stack.allocator.driver_pool:
        upper = int(upper * DRIVER_POOL_MARGIN)
        notes += ("wider margin: how cudaMallocAsync's pool splits and merges is not published",)
    if options.compiled:
        upper = int(upper * COMPILED_MARGIN)
        notes += ("wider margin: torch.compile was never compared",)
    if options.world_size > 1:
        if options.zero_stage:
            upper = int(upper * ZERO_MARGIN)
            how = f"ZeRO stage {options.zero_stage} of {options.world_size} processes"
            notes += (f"wider margin: {how} was never compared",)
        # Without ZeRO all numbers above one are alike, and flow/prepare counts on that.
        upper += NCCL_MIB
        notes += (f"wider margin: {NCCL_MIB} MiB for NCCL's buffers between processes",)
    return replace(answer, upper_mib=upper, notes=notes)


def _best(summary: Summary, options: TrainingOptions, stack: Stack) -> Estimate:
    """The recording's figure where there is one, else the text's."""
    if summary.recording is None:
        return estimate(summary, options, stack=stack, estimator="text")
    first = estimate(summary, options, stack=stack, estimator="traced")
    if first.memory_mib is not None:
        return first
    second = estimate(summary, options, stack=stack, estimator="text")
    if second.memory_mib is None:
        return first
    return replace(second, notes=(*second.notes, f"the recording is of no use: {first.reason}"))


def estimate_all(
    summary: Summary, options: TrainingOptions, *, stack: Stack, names: Sequence[str] = ()
) -> list[Estimate]:
    """Ask the named estimators, or all of them."""
    return [
        estimate(summary, options, stack=stack, estimator=name) for name in (names or registry())
    ]
