# SPDX-License-Identifier: Apache-2.0
"""From a summary and its options to the activity of the training alone, or to nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.activity.model import Predicted, activity
from slurm_coloc.estimate.activity.work import Step, step_of
from slurm_coloc.estimate.estimator import TrainingOptions
from slurm_coloc.estimate.rebuild.opening import opened
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.summary import Layer, Summary
from slurm_coloc.estimate.tokens import resized, tokens_in_text, with_tokens


def _flat(nodes: Sequence[Node], depth: int = 0, times: int = 1) -> Iterator[Layer]:
    """Rows of a tree whose closed rows were opened, in order; what is below a row counts there."""
    for node in nodes:
        layer, many = node.layer, times * node.times
        as_it_is = layer.depth == depth and layer.count == many  # a copy costs more than all else
        if node.children:
            if layer.leaf:
                yield replace(layer, depth=depth, count=many, leaf=False, parameters=0)
            else:
                yield layer if as_it_is else replace(layer, depth=depth, count=many)
            yield from _flat(node.children, depth + 1, many)
        else:
            yield layer if as_it_is else replace(layer, depth=depth, count=many)


def predicted(summary: Summary, options: TrainingOptions, card: str) -> Predicted | None:
    """On one card, see predicted_on; None where it cannot be."""
    return predicted_on(summary, options, (card,)).get(card) if card else None


def predicted_on(
    summary: Summary, options: TrainingOptions, cards: Iterable[str]
) -> dict[str, Predicted]:
    """By the names of those ``cards`` that are known. Empty where the family is not known, where
    rows are missing or show no shapes, and where several models share the job.
    ``options.batch_size`` is not None here."""
    if not summary.layers or summary.models > 1:
        return {}
    try:
        step = _step(summary, options)
        if step is None:
            return {}
        batch = -(-(options.batch_size or 1) // options.gpus)
        family, optimizer, precision = summary.family, options.optimizer, options.precision
        found = {card: activity(step, family, batch, card, optimizer, precision) for card in cards}
    except (SummaryError, OverflowError):  # numbers that no model has
        return {}
    return {card: one for card, one in found.items() if one is not None}


def _step(summary: Summary, options: TrainingOptions) -> Step | None:
    if not summary.shapes:
        if summary.family != "transformer":
            return None
        summary = with_tokens(summary, options.seq_len or options.default_seq_len)
    elif options.seq_len and (text := tokens_in_text(summary)) and text != options.seq_len:
        summary = resized(summary, text, options.seq_len)
    if summary.collapsed:
        summary = replace(summary, layers=tuple(_flat(opened(summary).top)))
    return step_of(summary)
