# SPDX-License-Identifier: Apache-2.0
"""From a summary and its options to the activity of the training alone, or to nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from slurm_coloc.errors import SummaryError
from slurm_coloc.estimate.activity.model import Predicted, activity
from slurm_coloc.estimate.activity.work import step_of
from slurm_coloc.estimate.estimator import TrainingOptions
from slurm_coloc.estimate.rebuild.opening import opened
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.summary import Layer, Summary
from slurm_coloc.estimate.tokens import resized, tokens_in_text, with_tokens


def _flat(nodes: Sequence[Node], depth: int = 0, times: int = 1) -> Iterator[Layer]:
    """Rows of a tree whose closed rows were opened, in order; what is below a row counts there."""
    for node in nodes:
        layer, many = node.layer, times * node.times
        if node.children:
            own = 0 if layer.leaf else layer.parameters
            yield replace(layer, depth=depth, count=many, leaf=False, parameters=own)
            yield from _flat(node.children, depth + 1, many)
        else:
            yield replace(layer, depth=depth, count=many)


def predicted(summary: Summary, options: TrainingOptions, card: str) -> Predicted | None:
    """None where the card or the family is not known, where rows are missing or show no shapes,
    and where several models share the job. ``options.batch_size`` is not None here."""
    if not card or not summary.layers or summary.models > 1:
        return None
    try:
        return _predicted(summary, options, card)
    except (SummaryError, OverflowError):  # numbers that no model has
        return None


def _predicted(summary: Summary, options: TrainingOptions, card: str) -> Predicted | None:
    if not summary.shapes:
        if summary.family != "transformer":
            return None
        summary = with_tokens(summary, options.seq_len or options.default_seq_len)
    elif options.seq_len and (text := tokens_in_text(summary)) and text != options.seq_len:
        summary = resized(summary, text, options.seq_len)
    if summary.collapsed:
        summary = replace(summary, layers=tuple(_flat(opened(summary).top)))
    step = step_of(summary)
    if step is None:
        return None
    batch = -(-(options.batch_size or 1) // options.gpus)
    return activity(step, summary.family, batch, card, options.optimizer, options.precision)
