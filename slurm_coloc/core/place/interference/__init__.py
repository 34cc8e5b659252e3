# SPDX-License-Identifier: Apache-2.0
"""Interference: how fast jobs run beside each other on one GPU, 1 = as fast as alone.

A model describes one GPU; a job of several GPUs runs as fast as on its slowest one. Policies use it
to predict the cost of a newcomer, the simulator to run the jobs.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference.fitted import FITTED, Fitted
from slurm_coloc.core.place.interference.learned import Learned, Pair, Whose, pairs_on
from slurm_coloc.core.place.interference.product import PRODUCT, Product
from slurm_coloc.core.place.interference.reference import REFERENCE, Reference
from slurm_coloc.errors import UsageFault

__all__ = [
    "FITTED",
    "METHODS",
    "MODELS",
    "PRODUCT",
    "REFERENCE",
    "Fitted",
    "Interference",
    "Learned",
    "Pair",
    "Product",
    "Reference",
    "Whose",
    "model",
    "pairs_on",
]

#: how kernels of several jobs share a GPU
METHODS = ("mps", "streams", "mig")


class Interference(Protocol):
    """A model of interference."""

    @property
    def name(self) -> str:
        """The name on the command line."""

    def speeds(self, jobs: Sequence[Activity], method: str = "mps") -> list[float]:
        """Speed of each job beside the others, in (0, 1]; ``method`` is one of METHODS but mig."""

    def slice_speed(self, job: Activity, fraction: float) -> float:
        """Speed of a job alone on a MIG instance with that fraction of the GPU's SMs."""


MODELS: Mapping[str, Interference] = MappingProxyType(
    {one.name: one for one in (REFERENCE, FITTED, PRODUCT)}
)


def model(name: str) -> Interference:
    """The model called ``name``. Raises UsageFault with the names."""
    try:
        return MODELS[name]
    except KeyError:
        raise UsageFault(f"--interference {name}: one of {', '.join(MODELS)}") from None
