# SPDX-License-Identifier: Apache-2.0
"""The machines of a simulation, as text.

`4xa100-40gb`: four GPUs of one node (eight a node at most). `25x8xh100-80gb`: 25 nodes of eight.
`2xa100-40gb:3g.20gb+4g.20gb`: each GPU cut by MIG; `4xa100-40gb:3g.20gb+4g.20gb@2`: the last two of
each node. `7g.40gb/3c/3c`: two compute instances that share one memory. Commas join nodes.
"""

import re
from dataclasses import dataclass

from slurm_coloc.core.gpu.cards import GPU_TYPES, GpuType, shards_of
from slurm_coloc.core.gpu.mig import Card, Profile, card, place
from slurm_coloc.errors import UsageFault

#: GPUs of one node where the text does not say
NODE = 8
ALIASES = {"a100": "a100-40gb", "h100": "h100-80gb", "h200": "h200-141gb", "b200": "b200-180gb"}
#: MiB of a GPU's total that no program finds: usable are about 40.4 GB of an A100's 40,960 MiB
DRIVER_MIB = 550
_PART = re.compile(r"(?:(\d+)x)?(\d+)x([a-z][a-z0-9-]*)(?::([0-9a-z.+/]+)(?:@(\d+))?)?", re.I)
#: a GPU instance, and the compute instances that share it: `7g.40gb/3c/3c`
_INSTANCE = re.compile(r"([1-7]g\.\d+gb)((?:/[1-7]c)*)")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or MIG instance. ``usable_mib``: what can be reserved on it; ``true_mib``: what a
    program finds. ``fraction``: of the GPU's SMs. ``gpu``: number of the GPU that it is a part
    of; ``part``: it is not all of it. ``bank``: number of the memory that it uses; compute
    instances share one."""

    node: int
    gpu: int
    kind: str
    usable_mib: int
    true_mib: int
    fraction: float = 1.0
    bank: int = -1
    part: bool = False


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


@dataclass(frozen=True, slots=True)
class Machine:
    """All devices, in the order in which Slurm would use them."""

    devices: tuple[Device, ...]
    text: str
    shard_mib: int = 1024
    margin_mib: int = 512

    @property
    def gpus(self) -> int:
        """GPUs, whole ones."""
        return len({device.gpu for device in self.devices})

    @property
    def nodes(self) -> int:
        """Nodes."""
        return len({device.node for device in self.devices})

    def halves(self, device: Device) -> tuple[int, Cut]:
        """MiB that can be reserved on each half of a whole GPU that MIG cuts in two, and the
        halves; raises UsageFault where it cannot be cut."""
        cut = halves(GPU_TYPES[device.kind])
        return shards_of(cut.mib, self.shard_mib, self.margin_mib) * self.shard_mib, cut


def parse_machine(text: str, shard_mib: int = 1024, margin_mib: int = 512) -> Machine:
    """A machine from its description; parts are joined by commas. Raises UsageFault."""
    devices: list[Device] = []
    node = gpu = 0
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if not found:
            raise UsageFault(
                f"--gpus: {part!r} is not [NODESx]GPUSxTYPE[:MIG+MIG...[@GPUS]], e.g. 4xa100-40gb"
            )
        nodes, each, name, mig, cut = found.groups()
        kind = _kind(name)
        for size in _nodes(int(nodes) if nodes else None, int(each)):
            whole = size - min(size, int(cut) if cut else size) if mig else size
            for number in range(size):
                for mib, fraction, bank in _parts(kind, mig if number >= whole else None):
                    usable = shards_of(mib, shard_mib, margin_mib) * shard_mib
                    is_part = number >= whole
                    label = f"{kind.name}:mig" if is_part else kind.name
                    true = mib if is_part else mib - DRIVER_MIB
                    devices.append(
                        Device(node, gpu, label, usable, true, fraction, 8 * gpu + bank, is_part)
                    )
                gpu += 1
            node += 1
    if not devices:
        raise UsageFault(f"--gpus: {text!r} names no GPU")
    return Machine(tuple(devices), text, shard_mib, margin_mib)


def _kind(name: str) -> GpuType:
    name = name.lower()
    kind = GPU_TYPES.get(ALIASES.get(name, name))
    if kind is None:
        raise UsageFault(f"--gpus: unknown GPU {name!r}; known are {', '.join(GPU_TYPES)}")
    return kind


def _nodes(nodes: int | None, gpus: int) -> list[int]:
    """GPUs of each node."""
    if nodes is not None:
        return [gpus] * nodes
    full, rest = divmod(gpus, NODE)
    return [NODE] * full + ([rest] if rest else [])


def _parts(kind: GpuType, mig: str | None) -> list[tuple[int, float, int]]:
    """(MiB, fraction of the SMs, number of the memory) of each device that one GPU gives."""
    if mig is None:
        return [(kind.total_mib, 1.0, 0)]
    return [
        (instance.mib, fraction, number)
        for number, instance in enumerate(layout(kind, mig))
        for fraction in instance.fractions
    ]


def layout(kind: GpuType, text: str) -> list[Instance]:
    """The instances of one GPU, e.g. of `3g.20gb+4g.20gb`. Raises UsageFault."""
    found = _card(kind)
    parts = [_instance(found, part) for part in text.lower().split("+")]
    if place(found, [profile.name for profile, _ in parts]) is None:
        raise UsageFault(f"--gpus: {text} does not fit one {kind.name}")
    return [instance for _, instance in parts]


def _instance(found: Card, part: str) -> tuple[Profile, Instance]:
    hit = _INSTANCE.fullmatch(part)
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
