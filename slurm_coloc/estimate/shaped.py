# SPDX-License-Identifier: Apache-2.0
"""A summary with a shape for each row, where that can be, for the estimate from a text."""

from math import prod

from slurm_coloc.estimate.estimator import TrainingOptions
from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.pixels.walk import with_pixels
from slurm_coloc.estimate.rebuild.doubt import meeting
from slurm_coloc.estimate.summary import NOT_KNOWN, Summary
from slurm_coloc.estimate.tokens import (
    not_one_size,
    resized,
    tokens_in_text,
    tokens_of,
    with_features,
    with_tokens,
)


def with_shapes(summary: Summary, options: TrainingOptions) -> tuple[Summary, str, tuple[str, ...]]:
    """The summary with a shape for each row, or the reason why that cannot be."""
    if not summary.shapes:
        return _without_shapes(summary, options)
    if any(NOT_KNOWN in shape for layer in summary.layers for shape in layer.outputs):
        return summary, "the summary has dimensions that are not known", ()
    if summary.format == "torchsummary" and any(
        is_attention(layer.kind) and "window" in layer.kind.lower() for layer in summary.layers
    ):
        return summary, "torchsummary hides the number of windows: use torchinfo", ()
    text = tokens_in_text(summary)
    if text and options.seq_len and options.seq_len != text:
        note = f"sequence length {options.seq_len} given, {text} in the summary: given wins"
        return resized(summary, text, options.seq_len), "", (note,)
    return summary, "", ()


def _without_shapes(
    summary: Summary, options: TrainingOptions
) -> tuple[Summary, str, tuple[str, ...]]:
    """Of print(model): from the input's shape, or from a number of tokens for all rows."""
    if summary.family != "transformer":
        shape = options.shape
        if summary.family == "recurrent" and options.seq_len:
            note = f"sequence length {options.seq_len}"
            return with_tokens(summary, options.seq_len), "", (note,)
        if summary.family == "mlp" and not any(row.role is Role.CONV for row in summary.layers):
            if kind := meeting(summary):
                return summary, f"what {kind} does is in no row: record it with coloc summarize", ()
            if shape and len(shape) > 1:
                note = f"input {'x'.join(map(str, shape))}"
                return with_tokens(summary, prod(shape[:-1])), "", (note,)
            return with_features(summary), "", ()
        if shape is None:
            reason = "the summary shows no shapes: give the input's (--coloc-input=3x224x224)"
            return summary, reason, ()
        return with_pixels(summary, shape), "", (f"input {'x'.join(map(str, shape))}",)
    tokens = options.seq_len
    if any(layer.role is Role.CONV for layer in summary.layers):
        if reason := not_one_size(summary):
            return summary, reason, ()
        tokens = tokens or (tokens_of(summary, options.shape) if options.shape else None)
        if tokens is None:
            reason = (
                "an image Transformer without shapes: give the input's (--coloc-input=3x224x224)"
            )
            return summary, reason, ()
    tokens = tokens or options.default_seq_len
    given = options.seq_len or options.shape
    note = f"sequence length {tokens}" + ("" if given else " assumed (default)")
    return with_tokens(summary, tokens), "", (note,)
