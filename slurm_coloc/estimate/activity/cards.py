# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA publishes of its cards, as far as it bounds how fast a training step can be."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Card:
    """``sms``: streaming multiprocessors. Peaks in 1e12 operations a second, dense: ``fp32`` of the
    CUDA cores, ``conv`` of fp32 convolutions (TF32 where the card has it: PyTorch's default),
    ``half`` of 16-bit products with 32-bit sums. ``bandwidth``: of memory, 1e9 bytes a second."""

    sms: int
    fp32: float
    conv: float
    half: float
    bandwidth: float


# NVIDIA's data sheets and architecture white papers, SXM where a card has one, without sparsity.
CARDS: Mapping[str, Card] = MappingProxyType(
    {
        "t4-16gb": Card(40, 8.1, 8.1, 65.0, 320.0),
        "v100-16gb": Card(80, 15.7, 15.7, 125.0, 900.0),
        "v100-32gb": Card(80, 15.7, 15.7, 125.0, 900.0),
        "rtx3090-24gb": Card(82, 35.6, 35.6, 71.0, 936.0),
        "rtx4090-24gb": Card(128, 82.6, 82.6, 165.2, 1008.0),
        "a10-24gb": Card(72, 31.2, 62.5, 125.0, 600.0),
        "a30-24gb": Card(56, 10.3, 82.0, 165.0, 933.0),
        "l4-24gb": Card(58, 30.3, 60.0, 121.0, 300.0),
        "l40s-48gb": Card(142, 91.6, 183.0, 362.0, 864.0),
        "a40-48gb": Card(84, 37.4, 74.8, 149.7, 696.0),
        "a100-40gb": Card(108, 19.5, 156.0, 312.0, 1555.0),
        "a100-80gb": Card(108, 19.5, 156.0, 312.0, 2039.0),
        "h100-80gb": Card(132, 66.9, 494.7, 989.4, 3350.0),
        "h200-141gb": Card(132, 66.9, 494.7, 989.4, 4800.0),
    }
)
MEASURED = "a100-40gb"  #: the only card that anything was measured on


def name_of(gpu_type: str) -> str:
    """The name in CARDS of a GPU type; of its model alone ("a100") the first of that model; "" if
    the card is not known."""
    if gpu_type in CARDS or not gpu_type:
        return gpu_type
    model = gpu_type.lower().partition("-")[0]
    return next((kind for kind in CARDS if kind.partition("-")[0] == model), "")


def card_of(gpu_type: str) -> Card | None:
    """The card of a GPU type, see name_of; None if it is not known."""
    return CARDS.get(name_of(gpu_type))
