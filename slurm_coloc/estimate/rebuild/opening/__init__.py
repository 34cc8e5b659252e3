# SPDX-License-Identifier: Apache-2.0
"""Rows that a depth limit closed, opened: torchinfo's default shows three levels.

A closed row tells its class, the shapes at both ends and the number of parameters below it. For
blocks that are built in one way only, that is enough: a rule proposes the rows inside, and they are
taken if they have exactly that many parameters. Rows that stay closed are estimated by what the
footer counts beyond the rows (see model.rebuild).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from slurm_coloc.estimate.kinds import holds_activation, is_attention
from slurm_coloc.estimate.lexing import bound_layers, fail
from slurm_coloc.estimate.rebuild.opening import convs, mobile, tokens, windows
from slurm_coloc.estimate.rebuild.opening.rows import (
    WHOLE,
    Style,
    counted,
    gate,
    parameters,
    row,
    style_of,
)
from slurm_coloc.estimate.rebuild.scope import Shape
from slurm_coloc.estimate.rebuild.tree import Node, tree
from slurm_coloc.estimate.summary import Layer, Summary

#: blocks of timm whose normalisation holds the activation, whatever the first rows have
_HOLDING = ("convnormact", "convbnact")
#: What may be tried for all rows of a text: a rule for one row and one shape counts 1, and one that
#: tries all widths inside more by the row's channels. A model of 1,000 closed blocks needs 6,000.
MAX_TRIES = 40_000
CHANNELS_OF_A_TRY = 16

Rule = Callable[[Style, Shape, Shape, int], list[Node] | None]

#: rules by what a class name ends with (without case and underscores), the first that fits counts
RULES: tuple[tuple[str | tuple[str, ...], tuple[Rule, ...]], ...] = (
    ("invertedresidual", (mobile.inverted, mobile.separable)),
    ("fusedmbconv", (convs.convolved, mobile.edge)),
    ("mbconv", (mobile.inverted, mobile.separable, mobile.edge)),
    ("depthwiseseparableconv", (mobile.separable,)),
    ("edgeresidual", (mobile.edge,)),
    (("basicconv2d", "convnormact", "convbnact", "conv2dnormactivation"), (convs.convolved,)),
    (("bottleneck", "bottleneckblock"), (convs.bottleneck,)),
    ("basicblock", (convs.basic,)),
    ("denselayer", (convs.dense,)),
    ("cnblock", (tokens.convnext,)),
    ("swintransformerblock", (windows.windows,)),
    ("swintransformerblockv2", (windows.windows2,)),
    ("shiftedwindowattention", (windows.window,)),
    ("decoderlayer", (tokens.gated_layer, tokens.layer)),
    ("predictionheadtransform", (tokens.transform,)),
    (("semodule", "squeezeexcite", "squeezeexcitation"), (gate,)),
    ("patchmerging", (convs.merging,)),
    ("mlp", (tokens.feedforward,)),
    ("attention", (tokens.attended,)),
    ("block", (tokens.layer,)),
    ("layer", (tokens.layer, tokens.gated_layer)),
    (
        "sequential",
        (
            convs.shortcut, convs.downsampled, convs.merging, windows.windows, tokens.convnext,
            tokens.layers,
        ),
    ),
    ("modulelist", (windows.windows2, tokens.layers)),
    ("encoder", (tokens.layers,)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ResolvedBlocks:
    """``top``: the rows as a tree. ``closed``: rows that no rule opened. ``found``: elements that a
    footer counts of those that were."""

    top: list[Node]
    closed: tuple[Layer, ...] = ()
    found: int = 0


def opened(summary: Summary) -> ResolvedBlocks:
    """The tree of a summary with its closed rows opened, where that can be done. It is cached:
    callers must not change it."""
    if not summary.collapsed:
        return ResolvedBlocks(tree(summary))
    plain = replace(summary, recording=None) if summary.recording else summary
    # Memory and activity ask for the same one, one after another. A hash would read each row.
    for last, found in _LAST:
        if last == plain:
            return found
    _LAST[:] = [(plain, _opened(plain))]
    return _LAST[0][1]


_LAST: list[tuple[Summary, ResolvedBlocks]] = []  # one at most


def _opened(summary: Summary) -> ResolvedBlocks:
    style = style_of(summary)
    made = [_with(summary, one) for one in _styles(summary, style)]
    most = summary.hidden_outputs
    near = most + 0.05 * (summary.activations + most)
    # Opened rows do not have more outputs than the footer counts. It rounds.
    return min(made, key=lambda one: (one.found > near, abs(one.found - most)))


def _styles(summary: Summary, style: Style) -> list[Style]:
    """Styles to try where the rows do not show the model's: the one whose outputs come closest to
    the footer's count is taken."""
    kinds = {row.kind.lower() for row in summary.layers if row.leaf and row.parameters}
    if any("decoderlayer" in kind for kind in kinds):
        return [replace(style, shared=many) for many in (1, 4, 8, 2, 7, 6, 3, 5, 16)]
    both = [style, replace(style, functional=True)]
    if any("swintransformer" in kind.lower() for kind in summary.rows.kinds):
        return [replace(one, window=side) for one in both for side in windows.WINDOWS]
    if not style.holds and any(kind.endswith(_HOLDING) for kind in kinds):
        return [style, replace(style, holds=True)]
    tokens = any(is_attention(kind) or kind.endswith(("block", "layer")) for kind in kinds)
    return both if tokens else [style]


def _with(summary: Summary, style: Style) -> ResolvedBlocks:
    top = tree(summary)
    work = _Opening(style, summary.batch_in_text or 1)
    work.walk(top, None, "")
    return ResolvedBlocks(top, tuple(work.closed), work.found)


class _Opening:
    def __init__(self, style: Style, batch: int) -> None:
        self.closed: list[Layer] = []
        self.found = 0
        self._rows = 0  # those that were opened
        self._tries = 0
        self._style, self._batch = style, batch

    def walk(self, nodes: list[Node], above: Shape | None, within: str) -> None:
        """``above``: what the container of ``nodes`` reads, ``within``: its class."""
        given = above
        for node in nodes:
            layer = node.layer
            if layer.inputs:
                given = layer.inputs[0]
            out = layer.outputs[0] if layer.outputs else given
            if out and layer.closed(out):
                self._open(node, given, above, within)
            elif holds_activation(layer.kind) and layer.leaf and out:
                self._activate(node, out)
            else:
                self.walk(node.children, given, layer.kind)
            if layer.outputs:
                given = layer.outputs[0]

    def _activate(self, node: Node, out: Shape) -> None:
        """The limit hid the activation that this normalisation holds."""
        node.children = [row("Identity", out, out), row(self._style.act, out, out)]
        node.layer = replace(node.layer, leaf=False)

    def _open(self, node: Node, given: Shape | None, above: Shape | None, within: str) -> None:
        layer = node.layer
        if not layer.outputs and given:  # a list: torchinfo prints no shape
            layer = replace(layer, outputs=(given,))
        shapes = [x for x in (given, above, layer.outputs[0]) if x]
        turned: list[Shape] = [(x[0], *x[2:], x[1]) for x in shapes if len(x) == 4]
        for rule in _rules(layer.kind, within):
            for shape in dict.fromkeys(shapes + turned):
                self._try(rule, shape)
                inside = _inside(rule, self._style, layer, shape)
                if inside:
                    self._rows += len(inside)
                    bound_layers(self._rows)
                    node.children = [_frozen(one) for one in inside] if layer.frozen else inside
                    own = layer.parameters - parameters(inside)
                    node.layer = replace(layer, parameters=own, leaf=False, inputs=(shape,))
                    if layer.kind not in WHOLE:
                        self.found += counted(inside, self._batch) * layer.count
                    return
        node.layer = layer
        self.closed.append(layer)

    def _try(self, rule: Rule, shape: Shape) -> None:
        """Raises SummaryError too_many_layers."""
        self._tries += 1
        if rule in (mobile.inverted, mobile.edge) and len(shape) > 1:
            self._tries += min(shape[1], mobile.WIDEST) // CHANNELS_OF_A_TRY
        if self._tries > MAX_TRIES:
            raise fail("too_many_layers", "too many rows of the summary are closed")


def _frozen(node: Node) -> Node:
    children = [_frozen(child) for child in node.children]
    return Node(replace(node.layer, frozen=True), node.times, children)


def _rules(kind: str, within: str) -> tuple[Rule, ...]:
    """Those for a class; a bare Sequential in a block of one is that block (torchvision)."""
    for name in (within, kind) if kind == "Sequential" else (kind,):
        flat = name.lower().replace("_", "")
        for ending, rules in RULES:
            if flat.endswith(ending) and (name == kind or rules[0] is mobile.inverted):
                return rules
    return ()


def _inside(rule: Rule, style: Style, layer: Layer, given: Shape) -> list[Node] | None:
    """What ``rule`` proposes, if it has the row's parameters."""
    out = given if layer.kind == "ModuleList" else layer.outputs[0]
    if len(given) < 3 or len(out) < 3:
        return None
    found = rule(style, given, out, layer.parameters)
    if not found:
        return None
    own = layer.parameters - parameters(found)
    # Attention alone may have matrices of its own beside its rows.
    return found if own == 0 or (own > 0 and rule is tokens.attended) else None
