# SPDX-License-Identifier: Apache-2.0
"""MIG in a simulation: the instances that a GPU is cut into, and how much of it each has.

The profiles are those of core/gpu/mig. A GPU instance can be shared by compute instances, which
have SMs of their own and one memory: `7g.40gb/3c/3c`.
"""

import re
from dataclasses import dataclass

from slurm_coloc.core.gpu.cards import GpuType
from slurm_coloc.core.gpu.mig import Card, Profile, card, place
from slurm_coloc.errors import UsageFault

_PART = re.compile(r"([1-7]g\.\d+gb)((?:/[1-7]c)*)")


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
    found = _card(kind)
    parts = [_instance(found, part) for part in text.lower().split("+")]
    if place(found, [profile.name for profile, _ in parts]) is None:
        raise UsageFault(f"--gpus: {text} does not fit one {kind.name}")
    return [instance for _, instance in parts]


def _instance(found: Card, part: str) -> tuple[Profile, Instance]:
    hit = _PART.fullmatch(part)
    profile = found.profile(hit[1]) if hit else None
    if hit is None or profile is None:
        raise UsageFault(f"--gpus: {part!r} is no MIG profile of {found.kind}, such as 3g.20gb")
    parts = [int(one[0]) for one in hit[2].split("/")[1:]] or [profile.compute]
    if sum(parts) > profile.compute:
        raise UsageFault(f"--gpus: {part}: compute instances of more than {profile.compute} slices")
    slices = profile.compute * found.sms
    return profile, Instance(profile.mib, tuple(one * profile.sms / slices for one in parts))


def halves(kind: GpuType) -> Cut:
    """Two instances with half the memory, of three slices of seven each (of four: two)."""
    found = _card(kind)
    half = next(
        one
        for one in found.profiles
        if (one.memory, one.compute) == (found.memory // 2, found.compute // 2)
    )
    return Cut(half.mib, half.sms / found.sms, found.profiles[-1].sms / found.sms)


def _card(kind: GpuType) -> Card:
    try:
        return card(kind.name)
    except UsageFault as err:
        raise UsageFault(f"--gpus: {err.message}") from None
