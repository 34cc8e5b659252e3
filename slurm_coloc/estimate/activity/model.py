# SPDX-License-Identifier: Apache-2.0
"""Mean SM and DRAM activity of a training that is alone on a GPU, predicted from its step.

Three things take turns at being the slowest: the GPU (for each kernel the largest of the shortest
time, products over the card's peak, bytes over its bandwidth), the host that launches the kernels,
and the host that brings the samples. They overlap in part: the step takes their p-norm. SM activity
is the part of the step in which kernels keep SMs busy: a kernel with little output fills few.

The coefficients are fitted to measured trainings on one machine; see estimator/activity. The speed
of its host is part of them, so a training that waits for another host, or for something else than
launches and image decoding, is less or more active than predicted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from slurm_coloc.estimate.activity.cards import MEASURED, Card, card_of
from slurm_coloc.estimate.activity.work import Step

#: Passes over a parameter's four bytes in an optimizer's step, temporaries of the foreach kernels
#: with them; counted from PyTorch's implementations.
PASSES = {
    "sgd": 3, "sgd-momentum": 5, "adam": 12, "adamw": 12, "adafactor": 6, "adam8bit": 5,
    "adam-fused": 7, "adamw-fused": 7, "adam-for-loop": 14, "adamw-for-loop": 14,
    "rmsprop": 9, "rmsprop-momentum": 14, "adagrad": 11, "adamax": 12, "nadam": 15, "radam": 13,
    "lion": 7,
}  # fmt: skip
MOST = 0.93  #: SM activity of kernels that fill the card: the highest that was measured (0.92)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """``conv``, ``dense``, ``bandwidth``: reached parts of the card's peaks (``dense`` above 1: in
    fp32 the measured Transformers were faster than CUDA cores allow). ``traffic``: bytes moved over
    those of inputs, outputs and weights. ``shortest_s``: of any kernel. ``call_s``: of the host for
    each kernel, ``step_s`` for each step, ``element_s`` for each element of a sample's input.
    ``tile``, ``sweep``: elements of output that keep one SM busy, in products and elsewhere.
    ``norm``: of the three times (1: one after the other; large: all at once)."""

    conv: float
    dense: float
    bandwidth: float
    traffic: float
    shortest_s: float
    call_s: float
    step_s: float
    element_s: float
    tile: float
    sweep: float
    norm: float


@dataclass(frozen=True, slots=True)
class Predicted:
    """Activities (ratios of 0 to 1), an interval for SM activity, and a step's time."""

    smact: float
    low: float
    high: float
    dram: float
    step_s: float


_LARGE = Coefficients(
    conv=0.47, dense=2.06, bandwidth=0.583, traffic=1.40, shortest_s=1.51e-5, call_s=2.70e-5,
    step_s=9.86e-3, element_s=3.49e-9, tile=531.0, sweep=547.0, norm=1.41,
)  # fmt: skip
_MLP = Coefficients(
    conv=0.35, dense=0.979, bandwidth=0.177, traffic=0.714, shortest_s=1.23e-5, call_s=3.11e-5,
    step_s=1.34e-3, element_s=2.50e-9, tile=1500.0, sweep=1760.0, norm=0.929,
)  # fmt: skip
#: By family, from `python -m estimator.activity` (2026-11-22: 34 trainings, 300 of 2,437 MLPs; on
#: an A100-40GB, fp32). MLPs were measured with a training loop of their own.
FITTED: Mapping[str, Coefficients] = MappingProxyType(
    {"cnn": _LARGE, "transformer": _LARGE, "mlp": _MLP}
)
#: Half of the interval: 90 % of the runs of model families kept out were within 0.10; of MLPs
#: within 0.05, but with another training loop's coefficients they are off by 0.14 in the mean.
WIDTH: Mapping[str, float] = MappingProxyType({"cnn": 0.10, "transformer": 0.10, "mlp": 0.15})
#: Times as wide on cards and in precisions that nothing was measured on: a choice.
UNMEASURED = 2.0


def predict(
    step: Step, batch: int, card: Card, coefficients: Coefficients, optimizer: str, half: bool
) -> tuple[float, float, float]:
    """SM activity, DRAM activity and seconds of a step of ``batch`` samples."""
    peak_conv = coefficients.conv * 1e12 * (card.half if half else card.conv)
    peak_dense = coefficients.dense * 1e12 * (card.half if half else card.fp32)
    bandwidth = coefficients.bandwidth * 1e9 * card.bandwidth
    wide = 2 if half else 4
    gpu_s = active_s = moved = kernels = 0.0
    for work in step.works:
        size = wide * coefficients.traffic * ((work.read + work.made) * batch + work.weights)
        memory_s = size / bandwidth
        compute_s = 2 * work.products * batch / (peak_dense if work.dense else peak_conv)
        forward_s = max(coefficients.shortest_s, compute_s, memory_s)
        if work.products:  # the gradients of input and weight are two more products
            took_s, each, passes, fills = 3 * forward_s, 3, 3.0, coefficients.tile
        else:
            took_s = forward_s + max(coefficients.shortest_s, 1.5 * memory_s)
            each, passes, fills = 2, 2.5, coefficients.sweep
        gpu_s += took_s * work.times
        active_s += took_s * work.times * min(1.0, work.made * batch / (fills * card.sms))
        moved += size * passes * work.times
        kernels += each * work.times
    optimizer_bytes = 4 * step.parameters * PASSES[optimizer]
    optimizer_s = optimizer_bytes / bandwidth
    gpu_s += optimizer_s
    active_s += optimizer_s * min(1.0, step.parameters / (coefficients.sweep * card.sms))
    host_s = coefficients.call_s * kernels + coefficients.step_s
    data_s = coefficients.element_s * step.given * batch
    norm = coefficients.norm
    step_s = sum(part**norm for part in (gpu_s, host_s, data_s)) ** (1 / norm)
    dram = (moved + optimizer_bytes) / (card.bandwidth * 1e9) / step_s
    return min(1.0, MOST * active_s / step_s), min(1.0, dram), step_s


def activity(
    step: Step, family: str, batch: int, card_name: str, optimizer: str, precision: str
) -> Predicted | None:
    """None where nothing is known of the card or of the family."""
    card, coefficients = card_of(card_name), FITTED.get(family)
    if card is None or coefficients is None:
        return None
    half = precision != "fp32"
    smact, dram, step_s = predict(step, batch, card, coefficients, optimizer, half)
    width = WIDTH[family] * (UNMEASURED if half or card != card_of(MEASURED) else 1.0)
    return Predicted(smact, max(0.0, smact - width), min(1.0, smact + width), dram, step_s)
