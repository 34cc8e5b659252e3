# SPDX-License-Identifier: Apache-2.0
"""Attention's product of queries, keys and values, which no row shows.

scaled_dot_product_attention has one kernel for it that keeps no scores, for tensors of four
dimensions (aten/src/ATen/native/transformers/sdp_utils_cpp.h: check_tensor_shapes); for three or
five it runs the plain product. Code of one's own runs that always: scores are made, normalised and
stored, and the matrices that a batched product reads are copied where they are parts of another.
"""

from dataclasses import dataclass

from slurm_coloc.estimate.rebuild.autograd import Value
from slurm_coloc.estimate.rebuild.scope import Scope, Shape


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of the queries, keys and values that meet, and of the result with its shape."""

    query: int
    key: int
    value: int
    made: int
    shape: Shape


@dataclass(frozen=True, slots=True)
class Scores:
    """``shape`` of the scores for one sample. ``copies``: tensors of that size that are kept.
    ``held``: what queries and keys were made of stays, too: they are divided by their lengths, or
    pooled. ``bias``: copies of the queries for a bias of the scores' size; None: there is none.
    ``whole``: what holds all three is copied once and stays; the values are a part of it."""

    shape: Shape
    copies: int = 1
    held: bool = False
    bias: int | None = None
    whole: bool = False


def fused(scope: Scope, parts: list[Value], sizes: Sizes, copied: bool = False) -> Value:
    """One kernel: keeps q, k, v, its result and, of 4 bytes a row and head, a logarithm (64 wide
    heads). ``copied``: it reads copies of the three."""
    rows = max(1, sizes.made // 64 // scope.low * 4)
    saves = [rows]
    if copied:
        saves += [sizes.query, sizes.key, sizes.value]
    kept = [] if copied else parts
    return scope.run(
        parts, sizes.shape, sizes.made, saves_inputs=kept, saves_output=True, saves=saves
    )


def eager(scope: Scope, parts: list[Value], sizes: Sizes, scores: Scores) -> Value:
    """Scores are stored: q scaled, the product, its softmax, and the product with the values."""
    kept = parts if scores.held else []
    values = sizes.query + sizes.key + sizes.value if scores.whole else sizes.value
    copied = scope.run(
        parts, sizes.shape, sizes.query, saves=[sizes.key, values], saves_inputs=kept
    )
    product = scope.run([copied], scores.shape, scope.bytes(scores.shape), saves_inputs=[copied])
    scope.drop(copied)
    product = scope.after(product, scope.lifted(product))
    size = scope.bytes(scores.shape, scope.high)
    if scores.bias is not None:
        bias = [sizes.query] * scores.bias
        product = scope.after(product, scope.run([product], scores.shape, size, saves=bias))
    more = [size] * (scores.copies - 1)
    made = scope.run([product], scores.shape, size, saves_output=True, saves=more)
    scope.drop(product)
    if scope.drops:
        mask = scope.bytes(scores.shape, 1)
        made = scope.after(made, scope.run([made], scores.shape, size, saves=[mask]))
    made = scope.after(made, scope.lowered(made))
    return scope.after(made, scope.run([made], sizes.shape, sizes.made, saves_inputs=[made]))
