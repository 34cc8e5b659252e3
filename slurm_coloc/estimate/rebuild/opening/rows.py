# SPDX-License-Identifier: Apache-2.0
"""Rows that a depth limit hid, made again: shapes of one sample, as torchinfo would have printed
them."""

from dataclasses import dataclass

from slurm_coloc.estimate.kinds import Role, holds_activation, role
from slurm_coloc.estimate.rebuild.scope import Shape, elements
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.summary import Layer, Summary


@dataclass(frozen=True, slots=True)
class Style:
    """How this model writes what its blocks repeat: the class of its normalisation, whether that
    holds the activation, the activation's class, the one between the matrices of a feed-forward,
    the side of attention's windows, whether attention's matrices are parameters of its own instead
    of rows, and queries that share a key."""

    norm: str = "BatchNorm2d"
    holds: bool = False
    act: str = "ReLU"
    wide: str = "GELU"
    window: int = 7
    functional: bool = False
    shared: int = 1


_ACTS = (Role.ACT_IN, Role.ACT_OUT)
_GATES = ("sigmoid", "softmax", "tanh")


def style_of(summary: Summary) -> Style:
    """From the rows that are shown: the last normalisation and the last activation that is no gate
    (of MobileNetV3 the first blocks have another than the rest)."""
    norms = [
        x.kind for x in summary.layers if x.role is Role.NORM and "layer" not in x.kind.lower()
    ]
    acts = shown_activations(summary)
    norm = norms[-1] if norms else "BatchNorm2d"
    holds = holds_activation(norm)
    # Not shown at all: nets whose normalisation holds it mostly have SiLU, which keeps more.
    act = acts[-1] if acts else "SiLU" if holds else "ReLU"
    wide = [x for x in acts if "gelu" in x.lower()]
    old = any(x.kind.startswith("GPT2") for x in summary.layers)
    return Style(norm, holds, act, wide[-1] if wide else "NewGELUActivation" if old else "GELU")


def shown_activations(summary: Summary) -> list[str]:
    """Classes of the activations among the rows, in their order; gates are none."""
    return [
        x.kind
        for x in summary.layers
        if x.role in _ACTS and not x.kind.lower().endswith(_GATES) and len(x.kind) < 16
    ]


#: attention whose rows are never called: the footer counts nothing of it
WHOLE = ("MultiheadAttention", "ShiftedWindowAttention")
#: attribute of a row that runs once for the whole batch
ONCE = "once"


def row(
    kind: str, given: Shape, out: Shape, parameters: int = 0, kernel: int = 0, once: bool = False
) -> Node:
    """One row without rows below it. ``once``: for the whole batch."""
    attributes = (("kernel_elements", kernel),) if kernel else ((ONCE, 1),) if once else ()
    return Node(Layer(kind, 0, (given,), (out,), parameters, attributes=attributes))


def group(kind: str, given: Shape, out: Shape, children: list[Node], own: int = 0) -> Node:
    """A container; ``own``: parameters of its own."""
    return Node(Layer(kind, 0, (given,), (out,), own, leaf=False), children=children)


def image(channels: int, like: Shape) -> Shape:
    """``like`` with other channels."""
    return (like[0], channels, *like[2:])


def width(channels: int, like: Shape) -> Shape:
    """``like`` (channels last) with other channels."""
    return (*like[:-1], channels)


def conv(given: Shape, out: Shape, kernel: int = 1, groups: int = 1, bias: bool = False) -> Node:
    """A convolution with ``kernel`` by ``kernel`` elements."""
    parameters = given[1] * out[1] * kernel * kernel // groups + (out[1] if bias else 0)
    return row("Conv2d", given, out, parameters, kernel * kernel)


def norm_act(style: Style, shape: Shape, active: bool = True) -> list[Node]:
    """A normalisation and the activation after it, in this model's way."""
    own = 2 * shape[1]
    if not style.holds:
        rows = [row(style.norm, shape, shape, own)]
        return [*rows, row(style.act, shape, shape)] if active else rows
    inside = [row("Identity", shape, shape)]
    inside.append(row(style.act if active else "Identity", shape, shape))
    return [group(style.norm, shape, shape, inside, own)]


def gate(style: Style, given: Shape, out: Shape, parameters: int) -> list[Node] | None:
    """Squeeze-and-excitation: the mean of each channel, through two small matrices, scales it.
    ReXNet normalises between them."""
    few = reduced(parameters, out[1], out[1])
    if few is None:
        few, odd = divmod(parameters - out[1], 2 * out[1] + 3)
        return None if odd or few < 1 else _gate_rows(style, out, few, normed=True)
    return _gate_rows(style, out, few) if few else None


def reduced(parameters: int, channels: int, most: int) -> int | None:
    """Channels that a gate of so many parameters squeezes to, 0 without a gate; None where that is
    not one."""
    if parameters == 0:
        return 0
    few, odd = divmod(parameters - channels, 2 * channels + 1)
    return None if odd or not 1 <= few <= max(channels, most) else few


def gated(style: Style, shape: Shape, few: int) -> list[Node]:
    """The block, if there is one."""
    return [group("SqueezeExcite", shape, shape, _gate_rows(style, shape, few))] if few else []


def _gate_rows(style: Style, shape: Shape, few: int, normed: bool = False) -> list[Node]:
    point = (shape[0], shape[1], 1, 1)
    small = image(few, point)
    return [
        conv(point, small, bias=True),
        *([row("BatchNorm2d", small, small, 2 * few)] if normed else []),
        row(style.act, small, small),
        conv(small, point, bias=True),
        row("Sigmoid", point, point),
    ]


def linear(given: Shape, channels: int, bias: int | None = None) -> Node:
    """A matrix; ``bias``: further parameters of the row, one for each channel by default."""
    more = channels if bias is None else bias
    return row("Linear", given, width(channels, given), given[-1] * channels + more)


def matrix(given: Shape, out: Shape) -> Node:
    """A matrix without bias."""
    return row("Linear", given, out, given[-1] * out[-1])


def counted(nodes: list[Node], batch: int) -> int:
    """Elements per sample of the outputs of rows with parameters and without rows below them: what
    the footer's pass size counts."""
    total = 0
    for node in nodes:
        layer = node.layer
        if layer.kind in WHOLE:
            continue
        if node.children:
            total += node.times * counted(node.children, batch)
        elif layer.parameters and role(layer.kind) not in (Role.BLOCK, Role.ALIAS):
            size = sum(map(elements, layer.outputs))
            total += node.times * (size // batch if layer.attribute(ONCE) else size)
    return total


def parameters(nodes: list[Node]) -> int:
    """Of all rows."""
    return sum(node.times * (node.layer.parameters + parameters(node.children)) for node in nodes)
