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


#: whole names
_NAMES = {
    Role.ACT_OUT: "relu leakyrelu sigmoid tanh softmax softmax2d logsoftmax elu threshold",
    Role.ACT_IN: "relu6 hardtanh gelu silu swish mish hardswish celu hardsigmoid selu prelu rrelu"
    " softplus softsign hardshrink softshrink tanhshrink logsigmoid activation multiply",
    Role.ALIAS: "identity flatten unflatten reshape permute modulelist moduledict parameterlist"
    " droppath stochasticdepth",
    Role.INPUT: "inputlayer",
    Role.RECURRENT: "rnn lstm gru simplernn bidirectional rnncell lstmcell grucell convlstm2d",
    Role.LINEAR: "dense conv1d einsumdense",
}
_EXACT = {name: what for what, names in _NAMES.items() for name in names.split()}
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
_SEVERAL = ("double", "triple")  # DoubleConv2d of a U-Net
_CONVS = ("conv1d", "conv2d", "conv3d", "convtranspose", "convolution", "separableconv")


@lru_cache(maxsize=4096)
def role(kind: str) -> Role:
    """The role of a class name; names are compared without case and underscores, but for PyTorch's
    Conv1d, which transformers has a matrix beside (Conv1D)."""
    if kind == "Conv1d":
        return Role.CONV
    name = kind.lower().replace("_", "")
    if name in _EXACT:
        return _EXACT[name]
    if name.endswith(_BLOCKS) or name.startswith(_SEVERAL):
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
def composed(kind: str) -> bool:
    """Whether a class is known by a part of its name alone."""
    return kind.lower().replace("_", "") not in _EXACT


@lru_cache(maxsize=4096)
def is_attention(kind: str) -> bool:
    """Self- or cross-attention over tokens (not the channel attention of squeeze-excitation)."""
    name = kind.lower()
    if any(
        part in name for part in ("channel", "spatial", "cbam", "eca", "gather", "pool", "kernel")
    ):
        return False
    return (
        "attent" in name
        or name.startswith(("attn", "nonlocal"))  # of diffusion models and autoencoders, of video
        or name.endswith("attn")
        or name == "gpsa"
    )


@lru_cache(maxsize=4096)
def holds_activation(kind: str) -> bool:
    """timm's BatchNormAct2d and its kin: a normalisation with the activation as its child."""
    return role(kind) is Role.NORM and "act" in kind.lower()
