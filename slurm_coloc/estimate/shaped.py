# SPDX-License-Identifier: Apache-2.0
"""A summary with a shape for each row, where that can be, for the estimate from a text."""

from math import prod

from slurm_coloc.estimate.estimator import TrainingOptions
from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.pixels.walk import with_pixels
from slurm_coloc.estimate.rebuild.doubt import meeting
from slurm_coloc.estimate.rebuild.given import given
from slurm_coloc.estimate.summary import NOT_KNOWN, Summary
from slurm_coloc.estimate.tokens import (
    hides,
    not_one_size,
    resized,
    tokens_in_text,
    tokens_of,
    with_features,
    with_tokens,
)

#: how far the input's size may be off where it is a guess by the first convolution's output
GUESS_RATIO = 0.1
#: print(model), whose rows have sizes where they show no shapes
PRINTED = "reprtree"
NO_SHAPES = (
    "the table shows no shapes: give it an input (torchinfo: input_size or input_data; Keras: call"
    " the model once before)"
)


def with_shapes(summary: Summary, options: TrainingOptions) -> tuple[Summary, str, tuple[str, ...]]:
    """The summary with a shape for each row, or the reason why that cannot be."""
    if not summary.shapes:
        return _without_shapes(summary, options)
    if reason := _of_another_size(summary, options):
        return summary, reason, ()
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


def _of_another_size(summary: Summary, options: TrainingOptions) -> str:
    """Why a text with shapes is not of what the options say; empty where it is, or may be."""
    own = given(summary)[1:]  # without the sample's 1
    if options.shape and own and not _alike(options.shape, own):
        asked, shown = ("x".join(map(str, shape)) for shape in (options.shape, own))
        return f"the summary is of an input of {shown}, --coloc-input says {asked}: print it so"
    # An image network has no tokens: what is given of them is of no use there.
    if not options.seq_len or summary.family not in ("transformer", "recurrent"):
        return ""
    sizes = {size for row in summary.layers for shape in row.outputs for size in shape}
    if tokens_in_text(summary) or options.seq_len in sizes.union(own):
        return ""
    return f"the summary shows no sequence of {options.seq_len} (--coloc-seq-len): print it so"


def _alike(asked: tuple[int, ...], shown: tuple[int, ...]) -> bool:
    """Whether two shapes are one, in whatever order a framework has the channels."""
    pairs = zip(sorted(asked), sorted(shown), strict=False)
    return len(asked) == len(shown) and all(abs(a - b) <= GUESS_RATIO * max(a, b) for a, b in pairs)


def _without_shapes(
    summary: Summary, options: TrainingOptions
) -> tuple[Summary, str, tuple[str, ...]]:
    """Of print(model): from the input's shape, or from a number of tokens for all rows."""
    if summary.format != PRINTED:
        return summary, NO_SHAPES, ()
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
        return _by_pixels(summary, shape)
    tokens, of_image = options.seq_len, False
    if any(layer.role is Role.CONV for layer in summary.layers):
        if reason := not_one_size(summary):
            if options.shape is None or hides(summary):
                return summary, reason, ()
            return _by_pixels(summary, options.shape)
        of_image = options.shape is not None and not tokens
        tokens = tokens or (tokens_of(summary, options.shape) if options.shape else None)
        if tokens is None:
            reason = (
                "an image Transformer without shapes: give the input's (--coloc-input=3x224x224)"
            )
            return summary, reason, ()
    tokens = tokens or options.default_seq_len
    known = options.seq_len or of_image
    note = f"sequence length {tokens}" + ("" if known else " assumed (default)")
    return with_tokens(summary, tokens), "", (note,)


def _by_pixels(summary: Summary, shape: tuple[int, ...]) -> tuple[Summary, str, tuple[str, ...]]:
    return with_pixels(summary, shape), "", (f"input {'x'.join(map(str, shape))}",)
