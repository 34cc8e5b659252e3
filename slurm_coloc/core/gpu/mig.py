# SPDX-License-Identifier: Apache-2.0
"""MIG: the profiles of each card, how they fit on one GPU, and the meaning of a profile's name.

NVIDIA's MIG user guide names profiles by compute slices and memory: ``3g.20gb`` has three of seven
compute slices and half of an A100-40GB's memory. A GPU instance can be divided into compute
instances, which have their own SMs and share its memory: ``2c.3g.20gb`` has two of its slices.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from slurm_coloc.core.gpu.cards import GPU_TYPES
from slurm_coloc.errors import UsageFault

# As nvidia-smi -L, NVML and gres.conf write it; Slurm's own detection puts the card's name before
# it (a100_3g.20gb). A suffix (+me, .me) tells of media engines, which no training uses.
_PROFILE = r"(?:.*_)?(?:([1-7])c\.)?([1-7])g\.([0-9]{1,3})gb((?:[+.][a-z.]+)?)"
_GIB = 1024
NEAR = 0.03  # drivers and ECC move a card's total by some hundred MiB


class Profile(NamedTuple):
    """A GPU instance profile of one card. ``id``: that of ``nvidia-smi mig -cgi``; ``mib``: memory
    of an instance; ``sms``: its SMs; ``compute``, ``memory``: slices; ``starts``: the memory slices
    that an instance can begin at (``nvidia-smi mig -lgipp``)."""

    name: str
    id: int
    mib: int
    sms: int
    compute: int
    memory: int
    starts: tuple[int, ...]


class Card(NamedTuple):
    """A GPU that MIG can cut. ``kind``: its name in core/gpu/cards; ``sms``: SMs without MIG."""

    kind: str
    sms: int
    compute: int
    memory: int
    profiles: tuple[Profile, ...]

    def profile(self, name: str) -> Profile | None:
        """The profile of a name such as ``1g.5gb``."""
        return next((one for one in self.profiles if one.name == name), None)


def _mib(gib: float) -> int:
    return int(gib * _GIB)


def _of_seven(
    kind: str, sms: int, names: tuple[str, ...], gib: tuple[float, ...], own: tuple[int, ...]
) -> Card:
    """Seven compute and eight memory slices: A100, H100, H200, B200. Placements and ids are the
    same on all of them."""
    ids = (19, 15, 14, 9, 5, 0)
    slices = ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8))
    starts: tuple[tuple[int, ...], ...]
    starts = ((0, 1, 2, 3, 4, 5, 6), (0, 2, 4, 6), (0, 2, 4), (0, 4), (0,), (0,))
    rows = zip(names, ids, gib, own, slices, starts, strict=True)
    return Card(
        kind,
        sms,
        7,
        8,
        tuple(Profile(n, i, _mib(g), s, c, m, at) for n, i, g, s, (c, m), at in rows),
    )


# `nvidia-smi mig -lgip` and -lgipp of each card, in GiB, from the lists in NVIDIA's user guide and
# public reports; the driver's release moves them by up to 128 MiB. Of the H200 only the 1g.18gb was
# found (16.00); the others are computed from its memory slices, which is below what they have. Of
# the B200 no list was found: names and parts are from NVIDIA's user guide, a slice has 18 SMs (as
# public reports of a 1g.23gb show), and memory is set 4 % below an eighth of the card's. On the
# node NVML tells the real memory.
CARDS: Mapping[str, Card] = MappingProxyType(
    {
        one.kind: one
        for one in (
            Card(
                "a30-24gb",
                56,
                4,
                4,
                (
                    Profile("1g.6gb", 14, _mib(5.8125), 14, 1, 1, (0, 1, 2, 3)),
                    Profile("2g.12gb", 5, _mib(11.6875), 28, 2, 2, (0, 2)),
                    Profile("4g.24gb", 0, _mib(23.44), 56, 4, 4, (0,)),
                ),
            ),
            _of_seven(
                "a100-40gb",
                108,
                ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
                (4.75, 9.625, 9.75, 19.625, 19.625, 39.375),
                (14, 14, 28, 42, 56, 98),
            ),
            _of_seven(
                "a100-80gb",
                108,
                ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
                (9.5, 19.5, 19.5, 39.25, 39.25, 79.0),
                (14, 14, 28, 42, 56, 98),
            ),
            _of_seven(
                "h100-80gb",
                132,
                ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
                (9.75, 19.625, 19.625, 39.5, 39.5, 79.25),
                (16, 26, 32, 60, 64, 132),
            ),
            _of_seven(
                "h100-94gb",
                132,
                ("1g.12gb", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
                (10.75, 21.625, 21.625, 46.375, 46.375, 93.125),
                (16, 26, 32, 60, 64, 132),
            ),
            _of_seven(
                "h200-141gb",
                132,
                ("1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
                (16.0, 32.0, 32.0, 64.0, 64.0, 128.0),
                (16, 26, 32, 60, 64, 132),
            ),
            _of_seven(
                "b200-180gb",
                148,
                ("1g.23gb", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"),
                (21.5, 43.0, 43.0, 86.0, 86.0, 172.0),
                (18, 18, 36, 54, 72, 148),
            ),
        )
    }
)


def card(kind: str) -> Card:
    """The card with this name in core/gpu/cards. Raises UsageFault where MIG cannot cut it."""
    try:
        return CARDS[kind]
    except KeyError:
        raise UsageFault(f"{kind} has no MIG, or it is not known here") from None


def kind_of(name: str, total_mib: int) -> str | None:
    """The card with this NVML name (NVIDIA A100-SXM4-40GB) and memory; None where MIG cannot cut
    it, or it is not known here."""
    words = re.split(r"[\s-]", name.lower())
    for kind in CARDS:
        near = abs(total_mib - GPU_TYPES[kind].total_mib) <= GPU_TYPES[kind].total_mib * NEAR
        if kind.partition("-")[0] in words and near:
            return kind
    return None


class Slice(NamedTuple):
    """The parts of a MIG device's name. ``compute``: compute slices of the compute instance, out of
    ``of`` of its GPU instance; ``gb``: the memory as named; ``media``: a suffix."""

    compute: int
    of: int
    gb: int
    media: str = ""

    @property
    def whole(self) -> bool:
        """Whether it is all of its GPU instance, so that its memory is its own."""
        return self.compute == self.of

    @property
    def instance(self) -> str:
        """Name of the GPU instance's profile."""
        return f"{self.of}g.{self.gb}gb"


def slice_of(name: str | None) -> Slice | None:
    """The MIG device that a gres type names; None for a card's name or no name."""
    found = re.fullmatch(_PROFILE, name or "", re.I)
    if not found:
        return None
    of = int(found[2])
    compute = int(found[1] or of)
    return Slice(compute, of, int(found[3]), found[4]) if compute <= of else None


def slice_mib(name: str, kind: str | None = None) -> int | None:
    """MiB that a job can use on a device of this gres type; None where no card has it.

    ``kind``: the card; None: the least of any card with this name counts. Compute instances of one
    GPU instance share its memory: a job's part there is by compute slices.
    """
    found = slice_of(name)
    if not found:
        return None
    known = CARDS.get(kind or "")
    cards = [known] if known else CARDS.values()
    sizes = [one.mib for each in cards if (one := each.profile(found.instance))]
    return min(sizes) * found.compute // found.of if sizes else None


def place(kind: Card, names: Iterable[str]) -> tuple[tuple[str, int], ...] | None:
    """The places of instances of these profiles on one GPU, as (name, first memory slice) in order
    of place; None where they do not fit together. Raises UsageFault for an unknown name."""
    wanted = []
    for name in names:
        found = kind.profile(name)
        if found is None:
            known = ", ".join(one.name for one in kind.profiles)
            raise UsageFault(f"{name!r} is no MIG profile of {kind.kind}: {known}")
        wanted.append(found)
    wanted.sort(key=lambda one: (-one.memory, -one.compute))
    if sum(one.compute for one in wanted) > kind.compute:
        return None
    spots = _spots(wanted, 0)
    if spots is None:
        return None
    pairs = zip((one.name for one in wanted), spots, strict=True)
    return tuple(sorted(pairs, key=lambda pair: pair[1]))


def _spots(wanted: list[Profile], taken: int) -> tuple[int, ...] | None:
    """The first memory slice of each, without overlap; ``taken``: bits of slices in use."""
    if not wanted:
        return ()
    first, rest = wanted[0], wanted[1:]
    for start in first.starts:
        bits = (1 << first.memory) - 1 << start
        if taken & bits:
            continue
        found = _spots(rest, taken | bits)
        if found is not None:
            return (start, *found)
    return None


def layouts(kind: Card) -> tuple[tuple[str, ...], ...]:
    """Every set of profiles that fits one GPU and leaves no room for more."""
    found: set[tuple[str, ...]] = set()
    order = tuple(one.name for one in reversed(kind.profiles))

    def grow(names: tuple[str, ...], since: int) -> None:
        full = True
        for position, name in enumerate(order):
            if place(kind, (*names, name)) is None:
                continue
            full = False
            if position >= since:
                grow((*names, name), position)
        if full:
            found.add(names)

    grow((), 0)
    return tuple(sorted(found, key=lambda one: (len(one), one)))
