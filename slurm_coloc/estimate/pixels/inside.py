# SPDX-License-Identifier: Apache-2.0
"""What stands below a row, told once for all rows: a row is asked for it again and again."""

from dataclasses import dataclass

from slurm_coloc.estimate.kinds import Role
from slurm_coloc.estimate.rebuild.tree import Node
from slurm_coloc.estimate.summary import Layer

#: beginnings of the class names of gates: the mean over all pixels, weighed, scales what they read
GATES = ("squeezeexc", "semodule", "selayer", "seblock", "eca", "ceca", "effectivese", "esemod")
#: values that tell a pixel's place, which is no value of the path
_POSITIONS = 3


@dataclass(frozen=True, slots=True)
class Inside:
    """What stands below a row, with it. ``first``: channels that the first one which is particular
    reads, 0: none is; ``needs``: entries in the list of all needs; ``matrix``: the first one with
    weights is a matrix; ``slides``: some is a convolution or a pool, ``convolved``: a convolution;
    ``matters``: it has weights and is no normalisation; ``places``: the first one with weights is a
    matrix over the pixels' places."""

    first: int
    needs: int
    weighs: bool
    matrix: bool
    slides: bool
    convolved: bool
    matters: bool
    places: bool


def inside(nodes: list[Node], needs: list[int], known: dict[int, Inside]) -> dict[int, Inside]:
    """Of all rows below ``nodes``, by their id. ``needs`` gets what each leaf reads, in order; a
    normalisation may have rows below it (timm's BatchNormAct2d)."""
    for node in nodes:
        begin, layer = len(needs), node.layer
        if not node.children or layer.role is Role.NORM:
            needs.append(_need(layer))
        own = needs[begin] if len(needs) > begin else 0
        inside(node.children, needs, known)
        below = [known[id(child)] for child in node.children]
        gate = bool(below) and layer.kind.lower().startswith(GATES)
        heavy = next((one for one in below if one.weighs), None)
        matrix = heavy.matrix if heavy else not below and layer.role is Role.LINEAR
        places = heavy.places if heavy else matrix and 0 < own <= _POSITIONS
        first = own or next((one.first for one in below if one.first), 0)
        known[id(node)] = Inside(
            0 if gate or places else first,
            len(needs) - begin,
            heavy is not None or layer.parameters > 0,
            matrix,
            layer.role in (Role.CONV, Role.MAXPOOL, Role.POOL) or any(one.slides for one in below),
            layer.role is Role.CONV or any(one.convolved for one in below),
            layer.role is not Role.NORM and (heavy is not None or layer.parameters > 0),
            places,
        )
    return known


def _need(layer: Layer) -> int:
    match layer.role:
        case Role.CONV:
            return layer.attribute("first")
        case Role.LINEAR:
            return layer.attribute("in_features")
        case Role.NORM:
            return layer.attribute("width")
    return 0
