# SPDX-License-Identifier: Apache-2.0
"""Shapes for Transformers whose text prints none (print(model)), and a changed sequence length."""

from dataclasses import replace

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.summary import Layer, Summary


def with_tokens(summary: Summary, seq_len: int) -> Summary:
    """The summary with ``(1, seq_len, width)`` as the output of every row.

    Widths come from the constructors; a row without one (activation, dropout) keeps the width that
    stands before it.
    """
    layers: list[Layer] = []
    known: dict[tuple[Layer, int], Layer] = {}  # the rows of repeated blocks are equal
    width = hidden = 0
    for layer in summary.layers:
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
        else:
            shown = 0  # a container gives out what its last row gives out
        made = known.get((layer, shown))
        if made is None:
            outputs = ((1, seq_len, shown),) if shown else ()
            made = known[layer, shown] = replace(layer, outputs=outputs)
        layers.append(made)
    return replace(summary, layers=tuple(layers), shapes=True)


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
    """The summary at another sequence length: every dimension of ``text`` tokens is replaced."""

    def change(layer: Layer) -> Layer:
        return replace(
            layer,
            inputs=tuple(_swap(shape, text, seq_len) for shape in layer.inputs),
            outputs=tuple(_swap(shape, text, seq_len) for shape in layer.outputs),
        )

    hidden = -(-summary.hidden_outputs * seq_len // text)
    return replace(
        summary, layers=tuple(change(layer) for layer in summary.layers), hidden_outputs=hidden
    )


def _swap(shape: tuple[int, ...], text: int, seq_len: int) -> tuple[int, ...]:
    if len(shape) < 2:
        return shape
    return (shape[0], *(seq_len if dim == text else dim for dim in shape[1:]))
