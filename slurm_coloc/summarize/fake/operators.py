# SPDX-License-Identifier: Apache-2.0
"""Operators by what there is to know for their shapes; see shapes."""

from __future__ import annotations

from typing import Any

import torch

ATEN = torch.ops.aten


def named(names: str) -> frozenset[Any]:
    """Operators as ``name.overload``, without those that this release of PyTorch does not have."""
    found = set()
    for name in names.split():
        operator, _, overload = name.partition(".")
        packet = getattr(ATEN, operator, None)
        if packet is not None and overload in packet.overloads():
            found.add(getattr(packet, overload))
    return frozenset(found)


#: views, with kernels for meta tensors in C++
VIEWS = named("""
detach.default view.default _unsafe_view.default t.default permute.default transpose.int
select.int slice.Tensor unsqueeze.default squeeze.dim squeeze.dims expand.default unbind.int
split.Tensor split_with_sizes.default as_strided.default alias.default
""")
#: new tensors, whose kernels for meta tensors tell at once
DIRECT = named("""
mm.default bmm.default baddbmm.default cat.default
_softmax.default _softmax_backward_data.default _log_softmax.default
_log_softmax_backward_data.default
sum.dim_IntList mean.dim clone.default avg_pool2d.default avg_pool2d_backward.default
max_pool2d_with_indices.default max_pool2d_with_indices_backward.default
""")
#: one element out for one in; the kernels for meta tensors of some are Python's, and slow
ALIKE = named("""
add.Tensor sub.Tensor mul.Tensor div.Tensor add.Scalar sub.Scalar mul.Scalar div.Scalar
pow.Tensor_Scalar neg.default exp.default sqrt.default rsqrt.default reciprocal.default abs.default
relu.default gelu.default silu.default sigmoid.default tanh.default hardtanh.default
leaky_relu.default elu.default mish.default hardsigmoid.default hardswish.default
threshold_backward.default gelu_backward.default silu_backward.default sigmoid_backward.default
tanh_backward.default elu_backward.default leaky_relu_backward.default mish_backward.default
hardsigmoid_backward.default hardswish_backward.default hardtanh_backward.default
""")
#: of these, those that PyTorch's own kernels for meta tensors give every layout
STRIDED = named("""
add.Tensor sub.Tensor mul.Tensor div.Tensor pow.Tensor_Scalar neg.default sqrt.default relu.default
gelu.default silu.default sigmoid.default threshold_backward.default gelu_backward.default
sigmoid_backward.default
""")
#: these write into their first argument and change no shape
IN_PLACE = named("""
normal_.default uniform_.default zero_.default fill_.Scalar copy_.default add_.Tensor mul_.Tensor
sub_.Tensor div_.Tensor clamp_.default erfinv_.default bernoulli_.float relu_.default
silu_.default hardtanh_.default hardswish_.default sigmoid_.default leaky_relu_.default
""")
#: of a shape alone; nobody knows their values
MADE = named("empty.memory_format randn.default rand.default")
