# SPDX-License-Identifier: Apache-2.0
"""What training keeps of each layer, walked in the order of execution.

A tensor is kept when the layer that made it saves its result (ReLU, Softmax) or a layer that reads
it saves its input (convolution, normalisation, GELU). So an in-place ReLU after a BatchNorm costs
nothing more, whatever torchsummary counts. While the backward pass stands at a layer it also holds
the gradients of that layer's input and output, and a convolution its workspace.

The peak is everything kept plus the largest transient, wherever in the model that stands: the
caching allocator does not join the segments of freed tensors, so the large early layers cannot be
served from what the later ones gave back (VGG16: 169 MiB a sample so, 168 measured).

Everything is bytes of one sample. An estimator by allocator replay can take the place of this file:
`walk` is its only use.
"""

from dataclasses import dataclass, field, replace

from slurm_coloc.estimate.kinds import Role, holds_activation, is_attention
from slurm_coloc.estimate.lexing import bounded
from slurm_coloc.estimate.summary import Layer, Summary

# cuDNN's workspace over (input + output) bytes for kernels over 1x1 that are not depthwise, fitted
# on the thesis' CNNs (throw-away prototype: 5.1 to 2.2 % median error).
WORKSPACE = 2.25
# Kept bytes over the outputs of modules with parameters, for rows that a depth limit hides:
# conv + BatchNorm + ReLU keep two tensors for two counted, SiLU nets three for two; where the
# normalisation holds the activation only the convolutions are counted; a Transformer block keeps 16
# widths for 11 counted.
HIDDEN_RATIO = {"cnn": 1.35, "cnn-act": 2.7, "transformer": 1.5, "mlp": 1.5}
LOGIT_COPIES = 2  # gradients of the log-softmax and of the logits, beside the two that are kept


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of one element: of what autocast lowers, and of what it keeps in fp32."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Tape:
    """Bytes of one sample: kept for the backward pass, at the peak, of the logits."""

    kept: int
    peak: int
    logits: int


@dataclass(slots=True)
class _Tensor:
    elements: int
    size: int
    kept: bool = False


@dataclass(slots=True)
class _Walk:
    bytes: Bytes
    eager: bool
    kept: int = 0
    largest: int = 0
    current: _Tensor = field(default_factory=lambda: _Tensor(0, 0))

    def keep(self) -> None:
        if not self.current.kept:
            self.kept = bounded(self.kept + self.current.size)
            self.current.kept = True

    def make(self, elements: int, unit: int) -> None:
        self.current = _Tensor(elements, bounded(elements * unit))

    def repeat(self, before: int, count: int) -> None:
        """What was kept since ``before`` is kept ``count`` times."""
        if count > 1:
            self.kept = bounded(before + (self.kept - before) * count)

    def at(self, transient: int) -> None:
        """Bytes that are needed for a moment."""
        self.largest = max(self.largest, bounded(transient))


def attention_sites(layers: tuple[Layer, ...]) -> frozenset[int]:
    """Rows of the innermost attention modules (BertSelfAttention, not BertAttention)."""
    sites: set[int] = set()
    above: list[int] = []
    for index, layer in enumerate(layers):
        while above and layers[above[-1]].depth >= layer.depth:
            above.pop()
        if is_attention(layer.kind):
            sites.difference_update(above)
            sites.add(index)
            above.append(index)
    return frozenset(sites)


def walk(summary: Summary, unit: Bytes, eager: bool) -> Tape:
    """Kept and peak bytes of one sample. ``eager``: attention scores are stored.

    Linear in the rows. Raises SummaryError number_out_of_range.
    """
    state = _Walk(unit, eager)
    sites = attention_sites(summary.layers)
    nested = summary.format in ("torchinfo", "reprtree")
    open_rows: list[int] = []
    inside: list[int] = []
    for index, layer in enumerate(summary.layers):
        while open_rows and summary.layers[open_rows[-1]].depth >= layer.depth:
            _leave(state, summary.layers[open_rows.pop()])
        while inside and summary.layers[inside[-1]].depth >= layer.depth:
            inside.pop()
        before = state.kept
        if index in sites:
            _attention(state, layer)
            inside.append(index)
        if nested and not layer.leaf:
            open_rows.append(index)
        if layer.leaf or (layer.parameters and layer.role is not Role.BLOCK):
            _layer(state, layer, bool(inside))
        elif not nested:
            _leave(state, replace(layer, count=1))
        state.repeat(before, layer.count)
    while open_rows:
        _leave(state, summary.layers[open_rows.pop()])
    hidden = int(summary.hidden_outputs * _hidden_ratio(summary)) * unit.low
    return _finish(state, bounded(hidden), unit)


def _hidden_ratio(summary: Summary) -> float:
    if summary.family == "cnn" and any(holds_activation(x.kind) for x in summary.layers):
        return HIDDEN_RATIO["cnn-act"]
    return HIDDEN_RATIO.get(summary.family, 2.0)


def _finish(state: _Walk, hidden: int, unit: Bytes) -> Tape:
    """The loss: the caller holds the logits, log-softmax keeps its result, both get gradients."""
    logits = bounded(state.current.elements * unit.high)
    state.keep()
    state.kept = bounded(state.kept + logits)
    state.at(LOGIT_COPIES * logits)
    return Tape(bounded(state.kept + hidden), bounded(state.kept + state.largest + hidden), logits)


def _layer(state: _Walk, layer: Layer, in_attention: bool) -> None:
    """One operation: what it saves, what it makes, what its backward step needs for a moment."""
    role = layer.role
    out = max(0, layer.output_elements)
    if role in (Role.ALIAS, Role.INPUT) or not layer.outputs:
        if role is Role.INPUT or (layer.outputs and out != state.current.elements):
            state.make(out, state.bytes.low)
        return
    given = layer.input_elements
    if layer.inputs and given > 0 and given != state.current.elements:
        # A function between the modules (cat, reshape, matmul) made the input.
        state.keep()
        state.make(given, state.bytes.low)
    before = state.current
    if role not in (Role.ACT_OUT, Role.DROPOUT, Role.EMBEDDING):
        state.keep()
    unit = state.bytes.high if _stays_high(layer) else state.bytes.low
    state.make(out, unit)
    if role in (Role.ACT_OUT, Role.BLOCK, Role.RECURRENT) or (
        in_attention and role in (Role.LINEAR, Role.CONV)
    ):
        state.keep()
    match role:
        case Role.MAXPOOL:
            state.kept += 8 * out
        case Role.DROPOUT:
            state.kept += 0 if layer.attribute("zero") else out
        case Role.EMBEDDING:
            state.kept += 8 * max(1, out // max(1, layer.outputs[0][-1]))
    moved = before.size + state.current.size
    extra = int(WORKSPACE * moved) if role is Role.CONV and _wide_kernel(layer, before) else 0
    state.at(moved + extra)


def _leave(state: _Walk, layer: Layer) -> None:
    """The end of a container: its result is the last tensor, or one that a function made."""
    out = layer.output_elements
    if not layer.outputs or out <= 0:
        return
    before = state.kept
    if out != state.current.elements:
        state.keep()
        state.make(out, state.bytes.low)
    elif layer.role is Role.BLOCK and not layer.parameters:
        state.keep()  # it may be an activation that is not known here, which saves its input
    state.repeat(before, layer.count)


def _attention(state: _Walk, layer: Layer) -> None:
    """The context that the projection reads, and the scores where they are stored."""
    if not layer.outputs or len(layer.outputs[0]) < 2:
        return
    shape = layer.outputs[0]
    out = max(0, layer.output_elements)
    state.kept = bounded(state.kept + out * state.bytes.low)
    if layer.leaf:
        state.kept = bounded(state.kept + 4 * out * state.bytes.low)  # input, q, k, v
    if state.eager and len(shape) == 3:
        # Head size 64 is the rule from BERT to Llama's 128: the smaller gives more scores. Softmax,
        # its dropout and the product before them: three copies (XLNet, measured).
        tokens, heads = shape[1], max(1, shape[2] // 64)
        scores = bounded(shape[0] * tokens * tokens * heads)
        state.kept = bounded(state.kept + 3 * scores * state.bytes.high)


def _stays_high(layer: Layer) -> bool:
    """Autocast keeps LayerNorm and Softmax in fp32; BatchNorm follows its input."""
    if layer.role is Role.NORM:
        return "batch" not in layer.kind.lower()
    return "softmax" in layer.kind.lower()


def _wide_kernel(layer: Layer, before: _Tensor) -> bool:
    """A kernel over 1x1 that is not depthwise, from the kernel column or from the parameters.

    Parameters over (input channels x output channels) are k^2 / groups.
    """
    shape = layer.outputs[0] if layer.outputs else ()
    channels = shape[1] if len(shape) > 2 else 1
    if layer.inputs and len(layer.inputs[0]) > 2:
        read = layer.inputs[0][1]
    else:
        pixels = 1
        for side in shape[2:]:
            pixels *= side
        read = max(1, before.elements // max(1, pixels))
    return layer.parameters >= 2 * channels * max(1, min(read, channels * 4))
