# SPDX-License-Identifier: Apache-2.0
"""Shapes for Transformers whose text prints none (print(model)), and a changed sequence length."""

from dataclasses import replace
from math import prod

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.summary import Layer, Summary

#: classes of vision models with products that no row shows where it has no shapes
_MORE = (
    "talkingheadattn", "classattn", "outlookattention", "gpsa",
    "parallelscalingblock", "visiontransformersam", "tnt",
)  # fmt: skip


def with_tokens(summary: Summary, seq_len: int | None) -> Summary:
    """The summary with ``(1, seq_len, width)`` as the output of every row; ``(1, width)`` without
    tokens.

    Widths come from the constructors; a row without one (activation, dropout) keeps the width that
    stands before it.
    """
    layers: list[Layer] = []
    known: dict[tuple[Layer, int], Layer] = {}  # the rows of repeated blocks are equal
    width = hidden = 0
    lead = () if seq_len is None else (seq_len,)
    for place, layer in enumerate(summary.layers):
        own = layer.attribute("width")
        if layer.role is Role.NORM and own:
            hidden = own
        if layer.leaf and layer.role is Role.LINEAR and not own:
            own = _width_of(layer.parameters, (width, hidden, 4 * hidden))
        if layer.leaf:
            width = own or width
            shown = width
        elif is_attention(layer.kind):
            shown = width
        elif layer.role is Role.LINEAR and place + 1 < len(summary.layers):
            shown = summary.layers[place + 1].attribute("width")  # a matrix with an adapter
        else:
            shown = 0  # a container gives out what its last row gives out
        made = known.get((layer, shown))
        if made is None:
            outputs = ((1, *lead, shown),) if shown else ()
            made = known[layer, shown] = replace(layer, outputs=outputs)
        layers.append(made)
    return replace(summary, layers=tuple(layers), shapes=True)


def with_features(summary: Summary) -> Summary:
    """Of a network of matrices alone: the shapes that follow from these."""
    shaped = with_tokens(summary, None)
    place = next((i for i, x in enumerate(shaped.layers) if x.attribute("in_features")), 0)
    first = shaped.layers[place]
    first = replace(first, inputs=((1, max(1, first.attribute("in_features"))),))
    return replace(shaped, layers=(*shaped.layers[:place], first, *shaped.layers[place + 1 :]))


def not_one_size(summary: Summary) -> str:
    """Why an image or audio Transformer's rows cannot be told by one number of tokens; empty for a
    plain one: a single convolution makes the patches, and all layers are of one width. (Hybrids and
    pyramids came out at a third of the truth.)"""
    convs = sum(row.count for row in summary.layers if row.role is Role.CONV and row.leaf)
    norms = {row.attribute("width") for row in summary.layers if row.role is Role.NORM}
    norms = {width for width in norms if 2 * width >= max(norms)}  # not those of single heads
    if convs > 1 or len(norms) > 1 or hides(summary):
        return "an image or audio model whose rows differ in size: print it with torchinfo"
    return ""


def hides(summary: Summary) -> bool:
    """Whether some class has products that no row shows."""
    return not {row.kind.lower() for row in summary.layers}.isdisjoint(_MORE)


def tokens_of(summary: Summary, shape: tuple[int, ...]) -> int:
    """Patches of an input of ``shape`` by the convolution's stride, and a class token."""
    row = next(row for row in summary.layers if row.role is Role.CONV and row.leaf)
    step = max(1, row.attribute("stride", 1))
    return prod(max(1, side // step) for side in shape[1:]) + 1


def _width_of(parameters: int, reads: tuple[int, ...]) -> int:
    """Outputs of a linear layer that prints no sizes (GPT-2's Conv1D), from its parameters.

    Parameters are outputs * (inputs + 1): the first input width that divides them is taken, else
    the smallest, which gives the widest output. 0 where no width is known.
    """
    known = [read for read in reads if read]
    for read in known:
        if parameters and parameters % (read + 1) == 0:
            return parameters // (read + 1)
    return parameters // (min(known) + 1) if known else 0


def tokens_in_text(summary: Summary) -> int | None:
    """Sequence length that the printed shapes show: the first embedding's. Shapes are those of one
    sample; some models have the tokens first and the batch second (XLNet)."""
    if summary.family != "transformer" or not summary.shapes:
        return None
    for layer in summary.layers:
        if layer.role is Role.EMBEDDING and layer.outputs and len(layer.outputs[0]) == 3:
            first, second, _ = layer.outputs[0]
            if first > 1 and second == summary.batch_in_text:
                return first * second
            return second
    return None


def resized(summary: Summary, text: int, seq_len: int) -> Summary:
    """The summary at another sequence length: every dimension of ``text`` tokens is replaced, but
    not the model's width where that is as many."""
    embeddings = (row for row in summary.layers if row.role is Role.EMBEDDING and row.outputs)
    width = next((row.outputs[0][-1] for row in embeddings), 0)

    def swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
        if width == text and len(shape) == 3 and shape[1:] == (text, text):
            return (shape[0], seq_len, text)
        return _swap(shape, text, seq_len)

    def change(layer: Layer) -> Layer:
        return replace(
            layer,
            inputs=tuple(map(swapped, layer.inputs)),
            outputs=tuple(map(swapped, layer.outputs)),
        )

    hidden = -(-summary.hidden_outputs * seq_len // text)
    return replace(
        summary, layers=tuple(change(layer) for layer in summary.layers), hidden_outputs=hidden
    )


def _swap(shape: tuple[int, ...], text: int, seq_len: int) -> tuple[int, ...]:
    if len(shape) < 2:
        return shape
    return (shape[0], *(seq_len if dim == text else dim for dim in shape[1:]))
