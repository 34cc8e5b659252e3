# SPDX-License-Identifier: Apache-2.0
"""What single modules make and save, by role: PyTorch's derivatives.yaml (2.x) and, for what CUDA
does otherwise, its kernels (aten/src/ATen/native/cudnn, native/cuda)."""

from math import isqrt, prod

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.lexing import bound_layers
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.scope import Scope, Shape, elements
from slurm_coloc.estimate.replay.recording import Scratch, Work
from slurm_coloc.estimate.summary import Layer


def leaf(scope: Scope, layer: Layer, x: Value) -> Value:
    """Run a module without children on ``x``."""
    out = layer.outputs[0] if layer.outputs else x.shape
    match layer.role:
        case Role.CONV:
            return convolution(scope, layer, x, out)
        case Role.LINEAR:
            return linear(scope, layer, x, out)
        case Role.NORM:
            return norm(scope, layer, x, out)
        case Role.ACT_OUT | Role.ACT_IN:
            return activation(scope, layer, x, out)
        case Role.MAXPOOL:
            return _max_pool(scope, layer, x, out)
        case Role.POOL:
            kept = [x] if len(out) > 1 and elements(out[1:]) > out[1] else []
            return scope.run([x], out, saves_inputs=kept)
        case Role.DROPOUT:
            if not scope.drops or layer.attribute("zero"):
                return scope.same(x, out)
            return scope.run([x], out, saves=[scope.bytes(out, 1)])
        case Role.EMBEDDING:
            size = scope.bytes(out, scope.high)
            scope.copied += layer.parameters
            return scope.run([], out, size, weights=scope.weights(layer))
        case Role.RECURRENT:
            return _recurrent(scope, layer, x, out)
        case Role.ALIAS | Role.INPUT if not layer.parameters:
            return scope.same(x, out)
        case _:
            return block(scope, layer, x, out)


def convolution(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """Saves its input; forward and both gradients take a workspace."""
    channels = out[1] if len(out) > 1 else 1
    if "condconv" in layer.kind.lower() and len(x.shape) == len(out) == 4:
        return _conditional(scope, layer, x, out)
    kernel, groups = _kernel(layer, x.shape, out)
    bias = channels if layer.parameters % (channels * kernel) == channels else 0
    weight = (layer.parameters - bias) * 4
    size = scope.bytes(out)
    scratch = [Scratch(work, x.size, size, weight, kernel, groups, channels) for work in Work]
    given = _padded(scope, layer, x, out, kernel)
    x = scope.after(given, scope.lowered(given))
    kept = [] if layer.frozen else [x]
    copy = [weight] if "stdconv" in layer.kind.lower() else []  # the weight, standardised
    copies = scope.copy(layer)
    weights = scope.weights(layer, bias)
    made = scope.run(
        [x],
        out,
        size,
        saves_inputs=kept,
        saves=copy,
        copies=copies,
        weights=weights,
        scratch=scratch,
    )
    return scope.after(x, made)


#: matrices of a step, and tensors of the output's size that its gates and state are
GATES = {"lstm": (4, 5), "gru": (3, 4)}


def _recurrent(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """Keeps its input, its output and the gates of each step (cuDNN's reserve), of all layers."""
    name = layer.kind.lower()
    matrices, gates = next((many for key, many in GATES.items() if key in name), (1, 1))
    layers = _layers(layer.parameters, matrices, x.shape[-1], out[-1])
    weights = scope.weights(layer)
    # Keras prints the last step's output alone; the gates are of all steps.
    steps = prod(x.shape[1:-1]) if len(out) < len(x.shape) else 1
    kept = [steps * scope.bytes(out)] * (gates * layers + layers - 1)
    return scope.run([x], out, saves_inputs=[x], saves_output=True, saves=kept, weights=weights)


def _layers(parameters: int, matrices: int, read: int, made: int) -> int:
    """Layers of a recurrent row, by its parameters: in both directions, else in one; with two
    biases a matrix (PyTorch), one (Keras) or none. 1 where none fits."""
    for sides in (2, 1):
        width = made // sides
        for biases in (2, 1, 0):
            first = sides * matrices * width * (read + width + biases)
            further = sides * matrices * width * (made + width + biases)
            more, odd = divmod(parameters - first, further) if further else (0, 1)
            if not odd and 0 <= more < 64 and made % sides == 0:
                return 1 + more
    return 1


def _conditional(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """A weight for each sample, summed of several (Yang et al. 2019, arXiv 1904.04971): timm runs
    one convolution with as many groups as samples."""
    kernel = layer.attribute("kernel_elements") or 1
    whole = x.shape[1] * out[1] * kernel
    alone = layer.parameters % whole > 0  # of each channel
    weight = scope.bytes((out[1] * kernel if alone else whole,))
    size = scope.bytes(out)
    groups = scope.batch * (out[1] if alone else 1)
    channels = scope.batch * out[1]
    scratch = [Scratch(work, x.size, size, weight, kernel, groups, channels) for work in Work]
    weights = scope.weights(layer)
    return scope.run([x], out, saves_inputs=[x], saves=[weight], weights=weights, scratch=scratch)


def _padded(scope: Scope, layer: Layer, x: Value, out: Shape, kernel: int) -> Value:
    """A padding that TensorFlow calls "same": a padded copy is what the row reads and saves (timm's
    pad_same), but for odd kernels that take each pixel, where both sides are padded alike."""
    side = isqrt(kernel)
    if "2dsame" not in layer.kind.lower() or side < 2 or not len(x.shape) == len(out) == 4:
        return scope.same(x, x.shape)
    if side % 2 and x.shape[2:] == out[2:]:
        return scope.same(x, x.shape)
    sides = [
        max(given, (made - 1) * -(-given // max(1, made)) + side)
        for given, made in zip(x.shape[2:], out[2:], strict=True)
    ]
    shape = (*x.shape[:2], *sides)
    if shape == x.shape:
        return scope.same(x, x.shape)
    return scope.run([x], shape)


def _max_pool(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """Saves what it reads and, of eight bytes each, where the largest were."""
    given = _padded(scope, layer, x, out, layer.attribute("kernel_elements") or 9)
    indices = 2 * scope.bytes(out, 4)
    return scope.after(given, scope.run([given], out, saves_inputs=[given], saves=[indices]))


def _kernel(layer: Layer, given: Shape, out: Shape) -> tuple[int, int]:
    """Elements of one kernel, and groups, from the kernel column or the parameters.

    Parameters are out * (in / groups) * kernel, plus out where there is a bias.
    """
    read = given[1] if len(given) > 2 else 1
    made = out[1] if len(out) > 2 else 1
    bare = layer.parameters - made
    whole = read * made
    kernel = layer.attribute("kernel_elements")
    if not kernel:
        for count in (layer.parameters, bare):
            if count > 0 and count % whole == 0:
                return count // whole, 1
        return (max(1, layer.parameters // max(1, made)), made)
    for count in (layer.parameters, bare):
        if count > 0 and whole * kernel % count == 0:
            return kernel, whole * kernel // count
    return kernel, 1


def linear(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """Saves its input. A flattening before it may be in no row."""
    reads = (x.shape[-1], elements(x.shape))
    bias = out[-1] if any(layer.parameters == (n + 1) * out[-1] for n in reads) else 0
    x = scope.lowered(x)
    kept = [] if layer.frozen else [x]  # what it reads is for its weight's gradient
    weights = scope.weights(layer, bias)
    copies = scope.copy(layer)
    made = scope.run([x], out, scope.bytes(out), saves_inputs=kept, copies=copies, weights=weights)
    return scope.after(x, made)


def norm(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """Saves its input, and mean and deviation of each channel, row or group."""
    name = layer.kind.lower()
    own = "batch" in name or name.endswith(WRITTEN) or "evonorm" in name
    size = scope.bytes(out, scope.unit(x) if own else scope.high)
    x = scope.same(x, x.shape) if own else scope.lifted(x)
    scope.copied += layer.parameters
    # Evolved normalisations are written in single functions; the third vector is the activation's
    # (torchsummary counts two).
    evolved = 0
    if "evonorm" in name:
        evolved = 4 if layer.parameters == 3 * out[1] else 3
    if "filterresponse" in name:  # what is divided by its mean square, and what is then scaled
        evolved = 2 if "tlu" in name else 1
    if "batch" in name:
        scope.constants.extend((2 * layer.parameters, 2 * layer.parameters, 8))
        rows = 4 * (out[1] if len(out) > 1 else out[0])
    elif "filterresponse" in name:
        rows = scope.bytes((out[1],), 4)
    elif "group" in name or "instance" in name:
        rows = scope.bytes((out[0], 32), 4)
    else:
        rows = scope.bytes(out[:-1], 4)
    more = [size] * evolved
    if evolved and "evonorm" in name and scope.low < 4:
        more.append(scope.bytes(out, 4))  # its variance is computed in 32 bits
    made = scope.run(
        [x],
        out,
        size,
        saves_inputs=[x],
        saves=[rows, rows, *_written(scope, name, out), *more],
        weights=scope.weights(layer, layer.parameters // 2),
    )
    return scope.after(x, made)


#: normalisations that are one function, whose names end as those of WRITTEN do
FUNCTIONS = ("rmsnorm", "rmsnorm2d", "simplenorm")
#: those of transformers' language models are written out: the normalised tensor is kept for the
#: product with the weight, and in half precision what they read as float
WRITTEN = ("rmsnorm", "t5layernorm")


def _written(scope: Scope, name: str, out: Shape) -> list[int]:
    """See WRITTEN."""
    if not name.endswith(WRITTEN) or name in FUNCTIONS:
        return []
    return [scope.bytes(out), *([scope.bytes(out, 4)] if scope.low < 4 else [])]


#: activations written as several functions: tensors that they keep besides input and result
COMPOSED = {
    "newgeluactivation": 3,
    "starrelu": 2,
    "squaredrelu": 1,
    "quickgelu": 1,
    "quickgeluactivation": 1,
}


def composed(layer: Layer) -> int:
    """See COMPOSED; 0 for all others."""
    return COMPOSED.get(layer.kind.lower(), 0)


#: activations that autocast computes in 32 bits and that save what they read
LIFTED = ("softplus",)
#: classes that save their result only where they run in place
NOT_THEN = ("leakyrelu", "elu", "threshold")


def activation(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """ACT_OUT saves its result and is taken to run in place where ``scope`` says so, else those of
    NOT_THEN save what they read; ACT_IN does so always. PReLU's kernel writes the gradient of its
    weight for each element, frozen or not (aten/src/ATen/native/Activation.cpp:
    _prelu_kernel_backward)."""
    name = layer.kind.lower()
    if name in LIFTED:
        x = scope.lifted(x)
        made = scope.run([x], out, scope.bytes(out, scope.high), saves_inputs=[x])
        return scope.after(x, made)
    if layer.role is Role.ACT_OUT:
        size = scope.bytes(out, scope.high if "softmax" in name else scope.unit(x))
        told = scope.printed and not layer.attribute("inplace")
        if (told or scope.own or not scope.inplace) and name in NOT_THEN:
            return scope.run([x], out, size, saves_inputs=[x])
        can = "softmax" not in name and "tanh" not in name and "sigmoid" not in name
        inplace = can and scope.inplace
        return scope.run([x], out, size, saves_output=True, inplace=inplace)
    more = [scope.bytes(out, scope.unit(x))] * composed(layer)
    kept = [] if name == "starrelu" else [x]  # its first function saves its own result
    weights, expanded = scope.weights(layer), name == "prelu"
    return scope.run([x], out, saves_inputs=kept, saves=more, weights=weights, expanded=expanded)


def block(scope: Scope, layer: Layer, x: Value, out: Shape) -> Value:
    """A module that is not known. With parameters it may hide rows below a depth limit, else it
    scales what it reads (LayerScale); without, it is taken for an activation where the shape
    stays."""
    size = scope.bytes(out, scope.unit(x))
    if layer.parameters > 2 * max(out) and scope.hidden:
        kept = int(size * scope.hidden)
        bound_layers(kept // size)
        more = [size] * (kept // size) + ([kept % size] if kept % size else [])
    elif layer.parameters:
        # Two vectors: a normalisation of single functions, which keeps what it scales, too.
        pair = layer.parameters in (2 * out[-1], 2 * out[1] if len(out) == 4 else 0)
        more = [size] if out == x.shape and pair else []
    elif out == x.shape:
        more = [size] if layer.kind == "GlobalResponseNorm" else []  # print(model) has no vectors
    else:
        return scope.reshaped(x, out)
    return scope.run([x], out, saves_inputs=[x], saves=more, weights=scope.weights(layer))
