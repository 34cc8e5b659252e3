# SPDX-License-Identifier: Apache-2.0
"""What single modules make of a value, by their constructors."""

from dataclasses import replace

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.lexing import bounded, fail
from slurm_coloc.estimate.pixels.frame import At
from slurm_coloc.estimate.summary import Layer

#: modules that halve both sides and print no stride
BLUR = "blurpool"


def leaf(layer: Layer, x: At) -> At:
    """What one module makes of ``x``."""
    name = layer.kind.lower()
    match layer.role:
        case Role.CONV:
            return At(layer.attribute("second"), _sides(layer, x, name))
        case Role.LINEAR:
            return _linear_of(layer, x)
        case Role.MAXPOOL | Role.POOL if "adaptive" not in name and "global" not in name:
            if "upsample" in name:
                return _scaled(layer, x)
            return replace(x, sides=_sides(layer, x, name))
        case Role.NORM if _over_last(name) and len(x.sides) > 1:
            return replace(x, last=True)  # over the last dimension (ConvNeXt)
    if "adaptive" in name or "globalpool" in name:
        side = layer.attribute("output_size", 1)
        return replace(x, sides=tuple(side for _ in x.sides))
    if name.startswith(BLUR) or name == "downsample":  # LeViT takes every second pixel
        return halved(x)
    if name == "flatten":
        return At(bounded(x.channels * x.pixels), ())
    return x


def _over_last(name: str) -> bool:
    return name.startswith(("layernorm", "rmsnorm")) and "2d" not in name


def halved(x: At) -> At:
    return replace(x, sides=tuple(-(-side // 2) for side in x.sides))


def _linear_of(layer: Layer, x: At) -> At:
    """A matrix reads pixels one by one where channels are last, else all of them or their mean."""
    made = layer.attribute("out_features")
    if x.last:
        return replace(x, channels=made)
    return At(made, ())


def _scaled(layer: Layer, x: At) -> At:
    factor = layer.attribute("scale_factor", 2)
    return replace(x, sides=tuple(bounded(side * factor) for side in x.sides))


def _sides(layer: Layer, x: At, name: str) -> tuple[int, ...]:
    """Of what a window makes that slides over ``x`` (torch.nn.Conv2d's formula, and its inverse for
    a transposed convolution)."""
    made = []
    for axis, side in enumerate(x.sides or (1,)):
        size = _along(layer, "kernel_size", axis, 1)
        stride = _along(layer, "stride", axis, 1 if layer.role is Role.CONV else size)
        padding = _along(layer, "padding", axis, 0)
        reach = _along(layer, "dilation", axis, 1) * (size - 1)
        if "transpose" in name:
            extra = _along(layer, "output_padding", axis, 0)
            made.append((side - 1) * stride - 2 * padding + reach + extra + 1)
        elif "same" in name or layer.attribute("same"):
            made.append(-(-side // stride))
        else:
            left = side + 2 * padding - reach - 1
            made.append((-(-left // stride) if layer.attribute("ceil") else left // stride) + 1)
    if min(made) < 1:
        raise fail(
            "no_shapes", f"{layer.kind} makes nothing of {x.shape[1:]}: is the input too small?"
        )
    return tuple(bounded(side) for side in made)


def _along(layer: Layer, name: str, axis: int, default: int) -> int:
    """A constructor's number for one axis; one for all is printed once."""
    first = layer.attribute(name, default)
    return layer.attribute(f"{name}{axis}", first) if axis else first
