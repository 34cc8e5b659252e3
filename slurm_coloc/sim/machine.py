# SPDX-License-Identifier: Apache-2.0
"""The machines of a simulation: `4xa100-40gb`, `25x8xh100-80gb`, `2xa100-40gb:3g.20gb+4g.20gb`."""

import re
from dataclasses import dataclass

from slurm_coloc.core.gpu import GPU_TYPES, GpuType, shards_of
from slurm_coloc.errors import UsageFault

#: GPUs of one node where the text does not say
NODE = 8
ALIASES = {"a100": "a100-40gb", "h100": "h100-80gb", "h200": "h200-141gb", "b200": "b200-180gb"}
#: MIG: streaming multiprocessors of one compute slice and of the GPU (NVIDIA's MIG user guide)
SMS = {
    "a100-40gb": (14, 108),
    "a100-80gb": (14, 108),
    "a30-24gb": (14, 56),
    "h100-80gb": (16, 132),
    "h100-94gb": (16, 132),
    "h200-141gb": (16, 132),
    "b200-180gb": (18, 148),
}
_PART = re.compile(r"(?:(\d+)x)?(\d+)x([a-z][a-z0-9-]*)(?::([0-9a-z.+]+))?", re.IGNORECASE)
_PROFILE = re.compile(r"([1-7])g\.(\d+)gb")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or MIG instance. ``usable_mib``: what can be reserved on it; ``true_mib``: what a
    program finds. ``fraction``: of the GPU's SMs. ``gpu``: number of the GPU that it is a part
    of."""

    node: int
    gpu: int
    kind: str
    usable_mib: int
    true_mib: int
    fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Machine:
    """All devices, in the order in which Slurm would use them."""

    devices: tuple[Device, ...]
    text: str

    @property
    def gpus(self) -> int:
        """GPUs, whole ones."""
        return len({device.gpu for device in self.devices})

    @property
    def nodes(self) -> int:
        """Nodes."""
        return len({device.node for device in self.devices})


def parse_machine(text: str, shard_mib: int = 1024, margin_mib: int = 512) -> Machine:
    """A machine from its description; parts are joined by commas. Raises UsageFault."""
    devices: list[Device] = []
    node = gpu = 0
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if not found:
            raise UsageFault(
                f"--gpus: {part!r} is not [NODESx]GPUSxTYPE[:MIG+MIG...], e.g. 4xa100-40gb"
            )
        nodes, each, name, mig = found.groups()
        kind = _kind(name)
        sizes = _nodes(int(nodes) if nodes else None, int(each))
        for size in sizes:
            for _ in range(size):
                for mib, fraction in _instances(kind, mig):
                    usable = shards_of(mib, shard_mib, margin_mib) * shard_mib
                    label = kind.name if fraction == 1.0 else f"{kind.name}:mig"
                    devices.append(Device(node, gpu, label, usable, mib - 550, fraction))
                gpu += 1
            node += 1
    if not devices:
        raise UsageFault(f"--gpus: {text!r} names no GPU")
    return Machine(tuple(devices), text)


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


def _instances(kind: GpuType, mig: str | None) -> list[tuple[int, float]]:
    """(MiB, fraction of the SMs) of each device that one GPU gives."""
    if mig is None:
        return [(kind.total_mib, 1.0)]
    if kind.name not in SMS:
        raise UsageFault(f"--gpus: {kind.name} has no MIG, or it is not known here")
    per_slice, all_sms = SMS[kind.name]
    out, slices = [], 0
    for text in mig.lower().split("+"):
        found = _PROFILE.fullmatch(text)
        if not found:
            raise UsageFault(f"--gpus: {text!r} is no MIG profile such as 3g.20gb")
        slices += int(found[1])
        out.append((int(found[2]) * 1024, int(found[1]) * per_slice / all_sms))
    if slices > 7 or sum(mib for mib, _ in out) > kind.total_mib + 1024:
        raise UsageFault(f"--gpus: {mig} does not fit one {kind.name}")
    return out
