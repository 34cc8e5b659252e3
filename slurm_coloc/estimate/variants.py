# SPDX-License-Identifier: Apache-2.0
"""From a forwarded summary and a user's options to the estimates of all cases that the submission
may turn out to be: each software stack of the site, one process and several.

Pure: it runs in a child of its own for each text (flow/prepare).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
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
from slurm_coloc.estimate.features import features, fingerprint
from slurm_coloc.estimate.lexing import fail
from slurm_coloc.estimate.packed import unpack_summary
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.replay.allocconf import rules_of
from slurm_coloc.estimate.replay.stack import DEFAULT_RULES, Stack
from slurm_coloc.estimate.request import Defaults, Given
from slurm_coloc.estimate.summary import Summary

BETWEEN = "\f\n"  # what the SPANK plugin puts between the summaries of an array
LARGER = 2**62
SEVERAL = 2  # processes that stand for any number above one: with ZeRO stage 0 all are alike
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
        cases = [_Case(name, several) for name in defaults.stacks for several in (False, True)]
        for text in texts:
            model = _Model(parse_summary(text), options, given.alloc_conf, defaults)
            for case in cases:
                case.add(model)
            if all(case.largest and case.largest.estimated.estimate is None for case in cases):
                break
    except (SummaryError, UsageFault) as err:
        return Prepared.without(Reason.BAD_SUMMARY, err.message)
    found = [case.largest for case in cases if case.largest]
    if len(texts) > 1:
        found = [replace(one, estimated=replace(one.estimated, key="")) for one in found]
    return Prepared(tuple(found))


def _texts(text: str) -> list[str]:
    """The different summaries of an array, or the one of a job."""
    if text.count(BETWEEN) >= MAX_TEXTS:  # counted first: a list of millions is memory
        raise fail("too_many_models", f"the array has more than {MAX_TEXTS} summaries")
    return list(dict.fromkeys(text.split(BETWEEN)))


class _Model:
    """One text and what is the same in all of its estimates."""

    def __init__(
        self, summary: Summary, options: TrainingOptions, alloc_conf: str | None, defaults: Defaults
    ) -> None:
        self._summary, self._given, self._defaults = summary, options, defaults
        self._alloc_conf = alloc_conf
        options = settled(summary, options)
        named = f"{options.seq_len or 0}/{options.optimizer}/{options.precision}"
        self._options, self._key = options, named
        batch = options.batch_size or summary.batch_in_text or 0
        self._known: dict[str, Any] = {
            "fingerprint": fingerprint(summary),
            "options": f"{batch}/{named}",
            "features": _bounded(features(summary, options)),
            "batch": min(batch, MAX_NUMBER),
        }
        self._activity: dict[str, float] | None = None

    def variant(self, name: str, several: bool) -> Variant:
        """The estimate for one case."""
        setting = with_allocator(self._defaults.stacks[name], self._alloc_conf)
        options = replace(self._given, world_size=SEVERAL if several else 1)
        answer = estimate(
            self._summary, options, stack=setting.stack, estimator=self._defaults.estimator
        )
        key = self._key
        if setting.stack.allocator != DEFAULT_RULES:
            key += f"/{setting.stack.allocator}"
        found, reason = None, answer.reason
        if answer.memory_mib is not None and answer.upper_mib is not None:
            found = Estimate(answer.name, answer.memory_mib, answer.upper_mib, answer.smact)
            reason = "; ".join([reason, *answer.notes, *setting.notes]).strip("; ")
        estimated = Estimated(
            found,
            detail=reason[:MAX_DETAIL],
            key=key,
            estimator=f"{answer.name} {answer.version}",
            context_mib=setting.stack.context_mib,
            **self._known,
        )
        replayed = found is not None and answer.name in REPLAYED
        return Variant(name, several, estimated, self._activities() if replayed else {})

    def _activities(self) -> dict[str, float]:
        if self._activity is None:
            self._activity = activities(self._summary, self._given, CARDS)
        return self._activity


@dataclass(slots=True)
class _Case:
    """One stack and number of processes, with the largest of the texts seen so far."""

    stack: str
    several: bool
    largest: Variant | None = None

    def add(self, model: _Model) -> None:
        """Take a text's estimate in. One without an estimate is larger than any."""
        if self.largest is not None and self.largest.estimated.estimate is None:
            return
        one = model.variant(self.stack, self.several)
        if self.largest is None or _upper_mib(one) > _upper_mib(self.largest):
            self.largest = one


def _upper_mib(one: Variant) -> int:
    found = one.estimated.estimate
    return LARGER if found is None else found.upper_mib


def _bounded(known: Mapping[str, int | float | str]) -> dict[str, Any]:
    """Sums over rows may leave 63 bits where a text is hostile."""
    return {
        name: min(value, MAX_NUMBER) if isinstance(value, int) else value
        for name, value in known.items()
    }
