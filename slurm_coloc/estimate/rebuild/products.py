# SPDX-License-Identifier: Apache-2.0
"""What functions make between the rows of a table without inputs: attention's products and
concatenations."""

from collections.abc import Sequence

from slurm_coloc.estimate.kinds import Role, is_attention
from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.gathering import Past, gathered
from slurm_coloc.estimate.rebuild.opening.convs import SIDES
from slurm_coloc.estimate.rebuild.scope import Scope, Shape
from slurm_coloc.estimate.summary import Layer

_WINDOWS = ("window", "pixelembed")
#: rows of a text whose concatenation is not found, before none is looked for any more
MOST_MISSED = 100


def unlisted_product(scope: Scope, layer: Layer, made: Value) -> Value | None:
    """What ``layer`` reads where that is a product of what was ``made`` last: scores, of a dropout
    over heads and pairs of tokens, or what attention gives out, of the matrix that projects it.
    None where it reads what was made."""
    out = layer.outputs[0] if layer.outputs else ()
    if layer.role is Role.DROPOUT and len(made.shape) == 3 and _pairs(out, made.shape[-2]):
        size = scope.bytes(out, scope.unit(made))
        return scope.run([made], out, size, saves_inputs=[made], saves_output=True)
    if layer.role is not Role.LINEAR or not out:
        return None
    if _pairs(made.shape, out[-2] if len(out) > 1 else 0):  # scores meet the values
        width = layer.parameters // out[-1]
        size = scope.bytes(read := (*out[:-1], width), scope.unit(made))
        return scope.run([made], read, size, saves_inputs=[made])
    if len(made.shape) < 3 or made.shape[-1] % 3:
        return None
    third = made.shape[-1] // 3
    if layer.parameters not in (third * out[-1], (third + 1) * out[-1]):
        return None
    read, size = (*made.shape[:-1], third), made.size // 3
    return scope.run([made], read, size, saves_inputs=[made], saves_output=True)


def unlisted_join(
    scope: Scope, past: Past, frame: list[Value], layer: Layer, made: Value
) -> Value | None:
    """The concatenation that ``layer`` reads where no row has its input: a convolution of more
    channels than were ``made`` last, by its parameters; a normalisation that gives out more. None
    where earlier values do not make it up."""
    out = layer.outputs[0] if layer.outputs else ()
    if len(out) != 4 or len(made.shape) != 4:
        return None
    if past.missed > MOST_MISSED:
        return None
    if layer.role is Role.NORM:
        if out[1] <= made.shape[1]:
            return None
        found = gathered(scope, past, frame, out)
        past.missed += found is None
        return found
    each, odd = divmod(layer.parameters, out[1])  # elements of a filter, and maybe its bias
    if layer.role is not Role.CONV or odd or each <= made.shape[1]:
        return None
    if _fits(each, made.shape[1]) or _fits(each - 1, made.shape[1]):
        return None
    for weights, side in ((each, 3), (each - 1, 3), (each, 1), (each - 1, 1)):
        read, odd = divmod(weights, side**2)
        shape = (made.shape[0], read, *made.shape[2:])
        if not odd and read > made.shape[1] and (one := gathered(scope, past, frame, shape)):
            return one
    past.missed += 1
    return None


def _fits(weights: int, channels: int) -> bool:
    """Whether a filter of so many elements may read so many channels, in groups perhaps."""
    return any(
        weights % side**2 == 0 and weights and channels % (weights // side**2) == 0
        for side in SIDES
    )


def hides_attention(rows: Sequence[Layer]) -> bool:
    """Whether a flat table has attention that its rows do not tell: scores that are stored, which
    meet tables and gates of their own; windows, which stand in the dimension that it prints as -1;
    matrices that are no modules (BEiT's), so that fewer than two stand before its own row."""
    matrices = 0
    past: Shape = ()
    for row in rows:
        if row.role is Role.NORM and "batch" not in row.kind.lower():
            matrices = 0
        elif row.role in (Role.LINEAR, Role.CONV):
            matrices += 1
        name, out = row.kind.lower(), row.outputs[0] if row.outputs else ()
        tokens = past[1] if len(past) == 3 else 0
        stored = row.role is Role.DROPOUT and _pairs(out, tokens)
        mixed = row.role is Role.LINEAR and out[1:3] == (tokens, tokens)  # CaiT's heads
        if stored or mixed or any(part in name for part in _WINDOWS):
            return True
        past = out
        if is_attention(row.kind) and not row.leaf:
            if matrices < 2:
                return True
            matrices = 0
    return False


def _pairs(shape: Shape, tokens: int) -> bool:
    """Whether a shape is that of several heads' scores of each pair of so many tokens."""
    return len(shape) == 4 and shape[1] > 1 and shape[-2:] == (tokens, tokens)
