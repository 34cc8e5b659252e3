# SPDX-License-Identifier: Apache-2.0
"""MIG: which instances a GPU can be cut into, and how much of it each has.

Profiles and slices as in NVIDIA's MIG user guide: `3g.20gb` has three compute slices and 20 GB. A
GPU instance can be shared by compute instances, which have SMs of their own and one memory:
`7g.40gb/3c/3c`.
"""

import re
from dataclasses import dataclass

from slurm_coloc.core.gpu import GpuType
from slurm_coloc.errors import UsageFault

#: compute slices and memory slices of a GPU, SMs of one compute slice, SMs of the whole GPU
_GEOMETRY = {
    "a30-24gb": (4, 4, 14, 56),
    "a100-40gb": (7, 8, 14, 108),
    "a100-80gb": (7, 8, 14, 108),
    "h100-80gb": (7, 8, 16, 132),
    "h100-94gb": (7, 8, 16, 132),
    "h200-141gb": (7, 8, 16, 132),
    "b200-180gb": (7, 8, 18, 148),
}
#: compute slices of a profile -> memory slices that there are profiles with
_EIGHTHS = {1: (1, 2), 2: (2,), 3: (4,), 4: (4,), 7: (8,)}
_FOURTHS = {1: (1,), 2: (2,), 4: (4,)}
_PROFILE = re.compile(r"([1-7])g\.(\d+)gb((?:/[1-7]c)*)")


@dataclass(frozen=True, slots=True)
class Instance:
    """A GPU instance. ``mib``: its memory. ``fractions``: of the GPU's SMs, of each compute
    instance in it; one where it is not divided."""

    mib: int
    fractions: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """How method mig uses a GPU without a layout: in two, or in one for a job that needs it.
    ``half`` and ``whole``: fractions of the GPU's SMs; ``mib``: memory of a half."""

    mib: int
    half: float
    whole: float


def layout(kind: GpuType, text: str) -> list[Instance]:
    """The instances of one GPU, e.g. of `3g.20gb+4g.20gb`. Raises UsageFault."""
    compute, memory, _, _ = _geometry(kind)
    out, used_compute, used_memory = [], 0, 0
    for part in text.lower().split("+"):
        found = _PROFILE.fullmatch(part)
        slices = int(found[1]) if found else 0
        eighths = round(int(found[2]) * memory / _nominal_gb(kind)) if found else 0
        if not found or eighths not in (_EIGHTHS if memory == 8 else _FOURTHS).get(slices, ()):
            raise UsageFault(f"--gpus: {part!r} is no MIG profile of {kind.name}, such as 3g.20gb")
        parts = [int(one[0]) for one in found[3].split("/")[1:]] or [slices]
        if sum(parts) > slices:
            raise UsageFault(f"--gpus: {part}: compute instances of more than {slices} slices")
        used_compute, used_memory = used_compute + slices, used_memory + eighths
        out.append(Instance(_mib(kind, eighths), tuple(_fraction(kind, one) for one in parts)))
    if used_compute > compute or used_memory > memory:
        raise UsageFault(f"--gpus: {text} does not fit one {kind.name}")
    return out


def halves(kind: GpuType) -> Cut:
    """Two instances with half the memory, of three slices of seven each (of four: two)."""
    compute, memory, _, _ = _geometry(kind)
    return Cut(_mib(kind, memory // 2), _fraction(kind, compute // 2), _fraction(kind, compute))


def _geometry(kind: GpuType) -> tuple[int, int, int, int]:
    if kind.name not in _GEOMETRY:
        raise UsageFault(f"--gpus: {kind.name} has no MIG, or it is not known here")
    return _GEOMETRY[kind.name]


def _fraction(kind: GpuType, slices: int) -> float:
    _, _, each, all_sms = _geometry(kind)
    return slices * each / all_sms


def _mib(kind: GpuType, slices: int) -> int:
    """Memory of so many memory slices: within 1.3 % of what `nvidia-smi mig -lgip` lists for
    A100-40GB (4.75, 9.75, 19.62 GiB) and H100-80GB (9.75, 19.62, 39.50 GiB)."""
    return int(kind.total_mib * slices / _geometry(kind)[1] * 0.985) - 128


def _nominal_gb(kind: GpuType) -> int:
    return int(kind.name.rsplit("-", 1)[1].removesuffix("gb"))
