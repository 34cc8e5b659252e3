# SPDX-License-Identifier: Apache-2.0
"""From a forwarded summary and a user's options to the estimates of all cases that the submission
may turn out to be: each software stack of the site, one process and several.

Pure: it runs in a child of its own for each text (flow/prepare).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from slurm_coloc.core.decide.decision import Estimate, Reason
from slurm_coloc.core.decide.prepared import MAX_DETAIL, MAX_NUMBER, Estimated, Prepared, Variant
from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.activity.cards import CARDS
from slurm_coloc.estimate.api import (
    REPLAYED,
    TrainingOptions,
    activities,
    estimate,
    settled,
)
from slurm_coloc.estimate.estimator import Estimate as Answer
from slurm_coloc.estimate.features import features, fingerprint
from slurm_coloc.estimate.lexing import fail
from slurm_coloc.estimate.packed import unpack_summary
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.allocconf import rules_of
from slurm_coloc.estimate.replay.stack import DEFAULT_RULES, Stack
from slurm_coloc.estimate.request import Defaults, Given, shape_of, training_of
from slurm_coloc.estimate.summary import Summary

BETWEEN = "\f\n"  # what the SPANK plugin puts between the summaries of an array
LARGER = 2**62
#: numbers of processes of a training; one in between has the estimate of the next smaller one,
#: which is more. Without ZeRO all above one are alike.
PROCESSES, DIVIDED = (1, 2), (1, 2, 4, 8)
#: Different summaries of one array. Slurm's MaxArraySize is 1001 unless an admin raises it.
MAX_TEXTS = 1024


def training_options(given: Given, defaults: Defaults) -> TrainingOptions:
    """The user's options with the site's defaults where the user said nothing."""
    return TrainingOptions(
        batch_size=given.batch_size,
        seq_len=given.seq_len,
        optimizer=given.optimizer or defaults.optimizer,
        precision=given.precision or defaults.precision,
        default_seq_len=defaults.seq_len,
        level=defaults.level,
        shape=shape_of(given.input),
        **training_of(given.training)._asdict(),
        assumed=tuple(name for name in ("optimizer", "precision") if getattr(given, name) is None),
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """The software stack that a job runs on, with notes for the user."""

    stack: Stack
    notes: tuple[str, ...] = ()


def with_allocator(stack: Stack, text: str | None) -> Setting:
    """``stack`` with the allocator as PYTORCH_CUDA_ALLOC_CONF of the job sets it."""
    if not text:
        return Setting(stack)
    try:
        rules, notes = rules_of(text)
    except UsageFault as err:
        return Setting(stack, (f"PYTORCH_CUDA_ALLOC_CONF is passed over: {err.message}",))
    if rules != stack.allocator:
        notes = ("the job's PYTORCH_CUDA_ALLOC_CONF is allowed for", *notes)
    return Setting(replace(stack, allocator=rules), tuple(notes))


def prepared(packed: str, given: Given, defaults: Defaults) -> Prepared:
    """All estimates of a forwarded summary. What is wrong with the text is an answer, not an error.

    Several texts: an array whose tasks have summaries of their own. The array is one request, so
    the largest task counts, and one that cannot be read counts as larger than any.
    """
    try:
        texts = _texts(unpack_summary(packed))
        options = training_options(given, defaults)
        stacks = {
            name: with_allocator(stack, given.alloc_conf) for name, stack in defaults.stacks.items()
        }
        numbers = DIVIDED if options.zero_stage else PROCESSES
        cases = [_Case(name, processes) for name in stacks for processes in numbers]
        for text in texts:
            model = _Model(parse_summary(text), options, defaults.estimator, given.training or "")
            for case in cases:
                case.add(model, stacks[case.stack].stack)
        made = [case.variant(stacks[case.stack]) for case in cases]
    except (SummaryError, UsageFault) as err:
        return Prepared.without(Reason.BAD_SUMMARY, err.message)
    if len(texts) > 1:
        made = [replace(one, estimated=replace(one.estimated, key="")) for one in made]
    return Prepared(tuple(made))


def _texts(text: str) -> list[str]:
    """The different summaries of an array, or the one of a job."""
    if text.count(BETWEEN) >= MAX_TEXTS:  # counted first: a list of millions is memory
        raise fail("too_many_models", f"the array has more than {MAX_TEXTS} summaries")
    return list(dict.fromkeys(text.split(BETWEEN)))


class _Model:
    """One text with the user's options. What is the same in all of its variants is made once."""

    def __init__(
        self, summary: Summary, options: TrainingOptions, estimator: str, training: str
    ) -> None:
        self.summary = summary
        self._training = training
        self._options = options
        self._estimator = estimator
        self._none: Answer | None = None

    def answer(self, stack: Stack, processes: int) -> Answer:
        """The estimate on one stack. Where one process has none on the first, which sees all of its
        GPU's memory, no other case has one: most of what is hostile is tried once."""
        if self._none is not None:
            return self._none
        options = replace(self._options, world_size=processes)
        found = estimate(self.summary, options, stack=stack, estimator=self._estimator)
        if found.memory_mib is None and stack.visible_mib is None:
            self._none = found
        return found

    @cached_property
    def settled(self) -> TrainingOptions:
        """The options with what the recording knows better."""
        return settled(self.summary, self._options)

    @cached_property
    def key(self) -> str:
        """The options without the batch size."""
        known = self.settled
        size = "x".join(map(str, known.shape)) if known.shape else known.seq_len or 0
        training = f"/{self._training}" if self._training else ""
        return f"{size}/{known.optimizer}/{known.precision}{training}"

    @cached_property
    def known(self) -> dict[str, Any]:
        """What the history stores of the model."""
        batch = self.settled.batch_size or self.summary.batch_in_text or 0
        return {
            "fingerprint": fingerprint(self.summary),
            "options": f"{batch}/{self.key}",
            "features": _bounded(features(self.summary, self.settled)),
            "batch": batch,
        }

    @cached_property
    def activity(self) -> dict[str, float]:
        """SM activity by card."""
        return activities(self.summary, self._options, CARDS)


@dataclass(slots=True)
class _Case:
    """One stack and number of processes, with the largest of the texts so far."""

    stack: str
    processes: int
    model: _Model | None = None
    answer: Answer = field(default_factory=Answer)

    def add(self, model: _Model, stack: Stack) -> None:
        """Take a text's estimate in."""
        if self.model is not None and self.answer.upper_mib is None:
            return  # one without an estimate is larger than any
        found = model.answer(stack, self.processes)
        if self.model is None or _upper_mib(found) > _upper_mib(self.answer):
            self.model, self.answer = model, found

    def variant(self, setting: Setting) -> Variant:
        """Of the largest text."""
        assert self.model is not None  # there is one text at least
        model, answer = self.model, self.answer
        key, stack = model.key, setting.stack
        if stack.allocator != DEFAULT_RULES:
            key += f"/{stack.allocator}"
        made, detail = None, answer.reason
        if answer.memory_mib is not None and answer.upper_mib is not None:
            made = Estimate(answer.name, answer.memory_mib, answer.upper_mib, answer.smact)
            detail = "; ".join([detail, *answer.notes, *setting.notes]).strip("; ")
        estimated = Estimated(
            made,
            detail=detail[:MAX_DETAIL],
            key=key,
            estimator=f"{answer.name} {answer.version}",
            context_mib=stack.context_mib,
            **model.known,
        )
        replayed = made is not None and answer.name in REPLAYED
        return Variant(self.stack, self.processes, estimated, model.activity if replayed else {})


def _upper_mib(answer: Answer) -> int:
    return LARGER if answer.upper_mib is None else answer.upper_mib


def _bounded(known: Mapping[str, int | float | str]) -> dict[str, Any]:
    """Sums over rows may leave 63 bits where a text is hostile."""
    return {
        name: min(value, MAX_NUMBER) if isinstance(value, int) else value
        for name, value in known.items()
    }
