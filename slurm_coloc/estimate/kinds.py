# SPDX-License-Identifier: Apache-2.0
"""What a layer's class name says about the tensors that its backward pass keeps.

Source of the sets: PyTorch's derivatives.yaml (2.x), read for what each formula saves, ``self`` or
``result``. A class that is not known here and has no parameters counts as a container.
"""

from enum import StrEnum
from functools import lru_cache


class Role(StrEnum):
    """What a layer does to memory."""

    CONV = "conv"  # saves its input; needs workspace
    LINEAR = "linear"  # saves its input
    NORM = "norm"  # saves its input
    ACT_IN = "act_in"  # saves its input: GELU, SiLU, Hardswish, ReLU6
    ACT_OUT = "act_out"  # saves its output: ReLU, Sigmoid, Tanh, Softmax
    MAXPOOL = "maxpool"  # saves its input and 8-byte indices
    POOL = "pool"  # saves its input
    DROPOUT = "dropout"  # saves a mask of one byte an element
    EMBEDDING = "embedding"  # saves its 8-byte indices
    RECURRENT = "recurrent"
    INPUT = "input"
    ALIAS = "alias"  # gives back its input or a view of it
    BLOCK = "block"  # everything else: a container, or a module that was not opened


_EXACT: dict[str, Role] = {
    "relu": Role.ACT_OUT, "leakyrelu": Role.ACT_OUT, "sigmoid": Role.ACT_OUT,
    "tanh": Role.ACT_OUT, "softmax": Role.ACT_OUT, "softmax2d": Role.ACT_OUT,
    "logsoftmax": Role.ACT_OUT, "elu": Role.ACT_OUT, "threshold": Role.ACT_OUT,
    "relu6": Role.ACT_IN, "hardtanh": Role.ACT_IN, "gelu": Role.ACT_IN, "silu": Role.ACT_IN,
    "swish": Role.ACT_IN, "mish": Role.ACT_IN, "hardswish": Role.ACT_IN, "celu": Role.ACT_IN,
    "hardsigmoid": Role.ACT_IN, "selu": Role.ACT_IN, "prelu": Role.ACT_IN, "rrelu": Role.ACT_IN,
    "softplus": Role.ACT_IN, "softsign": Role.ACT_IN, "hardshrink": Role.ACT_IN,
    "softshrink": Role.ACT_IN, "tanhshrink": Role.ACT_IN, "logsigmoid": Role.ACT_IN,
    "activation": Role.ACT_IN, "multiply": Role.ACT_IN,
    "identity": Role.ALIAS, "flatten": Role.ALIAS, "unflatten": Role.ALIAS,
    "reshape": Role.ALIAS, "permute": Role.ALIAS, "inputlayer": Role.INPUT,
    "rnn": Role.RECURRENT, "lstm": Role.RECURRENT, "gru": Role.RECURRENT,
    "simplernn": Role.RECURRENT, "bidirectional": Role.RECURRENT, "rnncell": Role.RECURRENT,
    "lstmcell": Role.RECURRENT, "grucell": Role.RECURRENT, "convlstm2d": Role.RECURRENT,
    "dense": Role.LINEAR, "conv1d": Role.LINEAR, "einsumdense": Role.LINEAR,
    "modulelist": Role.ALIAS, "moduledict": Role.ALIAS, "parameterlist": Role.ALIAS,
    "droppath": Role.ALIAS, "stochasticdepth": Role.ALIAS,
}  # fmt: skip
# Substrings, the first that fits decides. "conv1d" above is GPT-2's Linear in PyTorch texts; the
# Keras parsers write Keras' own as Conv1DKeras.
_PARTS: tuple[tuple[str, Role], ...] = (
    ("batchnorm", Role.NORM), ("layernorm", Role.NORM), ("groupnorm", Role.NORM),
    ("rmsnorm", Role.NORM), ("instancenorm", Role.NORM), ("batchnormalization", Role.NORM),
    ("layernormalization", Role.NORM), ("localresponsenorm", Role.NORM),
    ("evonorm", Role.NORM), ("filterresponsenorm", Role.NORM), ("simplenorm", Role.NORM),
    ("maxpool", Role.MAXPOOL), ("avgpool", Role.POOL), ("averagepool", Role.POOL),
    ("upsample", Role.POOL), ("globalaverage", Role.POOL),
    ("dropout", Role.DROPOUT), ("embedding", Role.EMBEDDING),
    ("gelu", Role.ACT_IN), ("swish", Role.ACT_IN), ("silu", Role.ACT_IN),
    ("relu", Role.ACT_IN), ("sigmoid", Role.ACT_IN),
)  # fmt: skip
_BLOCKS = (
    "block", "stage", "stem", "encoder", "decoder", "embeddings", "module",
    "depthwiseseparableconv",  # timm's; Keras' own is SeparableConv2D
    "basicconv2d",  # a convolution and its normalisation (Inception, GoogLeNet)
)  # fmt: skip
_CONVS = ("conv1d", "conv2d", "conv3d", "convtranspose", "convolution", "separableconv")


@lru_cache(maxsize=4096)
def role(kind: str) -> Role:
    """The role of a class name; names are compared without case and underscores."""
    name = kind.lower().replace("_", "")
    if name in _EXACT:
        return _EXACT[name]
    if name.endswith(_BLOCKS):
        return Role.BLOCK
    if "linear" in name and len(name) < 40 and not name.startswith("bilinear"):
        return Role.LINEAR
    if any(part in name for part in _CONVS) and not name.endswith(
        ("act", "bn", "relu", "activation")
    ):
        return Role.CONV
    for part, found in _PARTS:
        if part in name:
            return found
    return Role.BLOCK


@lru_cache(maxsize=4096)
def is_attention(kind: str) -> bool:
    """Self- or cross-attention over tokens (not the channel attention of squeeze-excitation)."""
    name = kind.lower()
    if any(
        part in name for part in ("channel", "spatial", "cbam", "eca", "gather", "pool", "kernel")
    ):
        return False
    return "attent" in name or name.endswith("attn") or name == "gpsa"


@lru_cache(maxsize=4096)
def holds_activation(kind: str) -> bool:
    """timm's BatchNormAct2d and its kin: a normalisation with the activation as its child."""
    return role(kind) is Role.NORM and "act" in kind.lower()
