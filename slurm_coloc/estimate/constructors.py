# SPDX-License-Identifier: Apache-2.0
"""Sizes that a module's constructor prints, and the parameters that follow from them."""

import re
from math import prod

from slurm_coloc.estimate.kinds import Role, role
from slurm_coloc.estimate.lexing import bounded, fail

_KEYWORD = re.compile(r"\b([a-z_0-9]{1,40})=\(?(\d{1,18})\b(?!\.)")
_LEADING = re.compile(r"\(?(\d{1,18})(?:, (\d{1,18}))?")
_AXES = re.compile(
    r"\b(kernel_size|stride|padding|dilation|output_padding)"
    r"=\(\d{1,9}, (\d{1,9})(?:, (\d{1,9}))?\)"
)
_SCALE = re.compile(r"\bscale_factor=\(?(\d{1,9})(?:\.0)?\b")
_PAIR = re.compile(r"\bkernel_size=\((\d{1,9})(?:, (\d{1,9}))?(?:, (\d{1,9}))?")
_LONG = re.compile(r"(?<![\d.])\d{19}")  # no decimals: str() of a float has as many
_SIZED = (Role.LINEAR, Role.CONV, Role.NORM, Role.EMBEDDING)
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}

Attributes = tuple[tuple[str, int], ...]


def attributes_of(kind: str, arguments: str) -> Attributes:
    """Integers of ``Linear(in_features=768, ...)``; linear in the text.

    ``width`` is the size of the last dimension that the module gives out, where it can be told.
    Raises bad_shape for a size of zero, number_out_of_range for integers of 19 digits and more.
    """
    if not arguments:
        return ()
    if _LONG.search(arguments):
        raise fail("number_out_of_range", f"{kind} prints a number of 19 digits or more")
    found = {key: int(value) for key, value in _KEYWORD.findall(arguments)}
    lead = _LEADING.match(arguments)
    if lead:
        found["first"] = int(lead[1])
        if lead[2]:
            found["second"] = int(lead[2])
    pair = _PAIR.search(arguments)
    if pair:
        found["kernel_elements"] = bounded(prod(int(side) for side in pair.groups() if side))
    for name, *more in _AXES.findall(arguments):  # of the second and third axis, where they differ
        unlike = {f"{name}{axis}": int(size) for axis, size in enumerate(more, 1) if size}
        found |= {key: size for key, size in unlike.items() if size != found.get(name)}
    if scale := _SCALE.search(arguments):
        found["scale_factor"] = int(scale[1])
    if "padding=same" in arguments:
        found["same"] = 1
    if "ceil_mode=True" in arguments:
        found["ceil"] = 1
    if "bias=False" in arguments:
        found["no_bias"] = 1
    if role(kind) is Role.NORM and "bias=True" in arguments:
        found["shows_bias"] = 1
    if "elementwise_affine=False" in arguments or "affine=False" in arguments:
        found["no_affine"] = 1
    if "inplace=True" in arguments:
        found["inplace"] = 1
    if "bidirectional=True" in arguments:
        found["directions"] = 2
    if role(kind) is Role.DROPOUT and re.match(r"(?:p=)?0(?:\.0+)?(?:,|\Z)", arguments):
        found["zero"] = 1
    for key in ("in_features", "out_features", "nf", "nx", "first", "second"):
        if found.get(key) == 0 and role(kind) in _SIZED:
            raise fail("bad_shape", f"{kind} prints a size of zero")
    if role(kind) in _SIZED and re.search(r"(?:features|channels)=-\d|\(-\d", arguments):
        raise fail("bad_shape", f"{kind} prints a negative size")
    if (width := _width(kind, found)) > 0:
        found["width"] = width
    return tuple(sorted(found.items()))


def _width(kind: str, found: dict[str, int]) -> int:
    for key in ("out_features", "nf", "embedding_dim"):
        if key in found:
            return found[key]
    match role(kind):
        case Role.EMBEDDING | Role.CONV:
            return found.get("second", 0)
        case Role.RECURRENT:
            return found.get("second", 0) * found.get("directions", 1)
        case Role.NORM:
            return found.get("second", 0) if "group" in kind.lower() else found.get("first", 0)
    return 0


def parameters_of(kind: str, sizes: dict[str, int]) -> int | None:
    """Parameters by the constructor's sizes; None where they cannot be told."""
    bias = 0 if sizes.get("no_bias") else 1
    what = role(kind)
    if "in_features" in sizes and "out_features" in sizes:
        return bounded((sizes["in_features"] + bias) * sizes["out_features"])
    if "in1_features" in sizes and "in2_features" in sizes and "out_features" in sizes:
        return bounded(
            (sizes["in1_features"] * sizes["in2_features"] + bias) * sizes["out_features"]
        )
    if "nf" in sizes and "nx" in sizes:
        return bounded((sizes["nx"] + 1) * sizes["nf"])
    if kind in _GATES and "first" in sizes and "second" in sizes:
        return _recurrent(_GATES[kind], sizes)
    if what is Role.CONV and "first" in sizes and "second" in sizes:
        groups = max(1, sizes.get("groups", 1))
        area = sizes.get("kernel_elements", sizes.get("kernel_size", 1))
        inputs = -(-sizes["first"] // groups)
        return bounded((inputs * area + bias) * sizes["second"])
    if what is Role.EMBEDDING and "first" in sizes and "second" in sizes:
        return bounded(sizes["first"] * sizes["second"])
    if what is Role.NORM:
        return 0 if sizes.get("no_affine") else 2 * _width(kind, sizes)
    if what is Role.LINEAR:
        return None
    return sizes.get("num_parameters", 0)


def _recurrent(gates: int, sizes: dict[str, int]) -> int:
    inputs, hidden = sizes["first"], sizes["second"]
    layers, directions = sizes.get("num_layers", 1), sizes.get("directions", 1)
    first = gates * hidden * (inputs + hidden + 2)
    later = gates * hidden * (hidden * directions + hidden + 2)
    return bounded(directions * (first + max(0, layers - 1) * later))
