# SPDX-License-Identifier: Apache-2.0
"""The shape of the cluster as a decision needs it, and the GPUs that a job may get."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.gpu.mig import slice_mib
from slurm_coloc.core.slurm.releases import SEVERAL_GPUS, WHOLE_APART, Release

# SelectTypeParameters needs it for a job with shards of several GPUs.
MULTI_GPU_PARAMETER = "MULTIPLE_SHARING_GRES_PJ"


@dataclass(frozen=True, slots=True)
class NodeWeight:
    """A node of any sort. ``weight``: Slurm's, lower ones are filled first; ``gpus``: has some."""

    name: str
    partitions: tuple[str, ...]
    weight: int
    gpus: bool


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node's GPUs: ``gpus`` whole ones of ``gpu_type`` (None: untyped, or several types) sharing
    ``shards`` evenly; ``slices``: gres types of its MIG devices and how many there are of each."""

    name: str
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    gpu_type: str | None
    gpus: int
    shards: int
    usable: bool = True
    down: bool = False  # its jobs are gone; a draining node still runs them
    cpus: int = 0
    memory_mib: int = 0
    address: str = ""  # NodeAddr
    hostname: str = ""  # NodeHostName
    slices: tuple[tuple[str, int], ...] = ()
    #: gres type of each GPU where each has its own (core/slurm/gres); jobs can be steered there
    devices: tuple[str, ...] = ()

    @property
    def shards_per_gpu(self) -> int:
        """Shards of one GPU; Slurm spreads a node's count evenly over its devices."""
        return self.shards // self.gpus if self.gpus else 0


@dataclass(frozen=True, slots=True)
class NodeKind:
    """``count`` nodes that a decision cannot tell apart: ``node``, one of them, differs from the
    others in its name, addresses, memory and state alone."""

    node: NodeShape
    count: int


def _kinds(nodes: Sequence[NodeShape]) -> tuple[NodeKind, ...]:
    alike: dict[tuple[object, ...], list[NodeShape]] = {}
    for one in nodes:
        gpus = (one.gpu_type, one.gpus, one.shards, one.slices, one.devices, one.cpus)
        alike.setdefault((one.partitions, one.features, *gpus), []).append(one)
    return tuple(NodeKind(found[0], len(found)) for found in alike.values())


@dataclass(frozen=True, slots=True)
class PartitionShape:
    """A partition: defaults per GPU and the time limit (minutes; None: unlimited).

    ``preempt_mode`` is the one in force, in Slurm's words (``GANG,SUSPEND``); the cluster's where
    the partition names none.
    """

    name: str
    default: bool = False
    def_cpu_per_gpu: int | None = None
    def_mem_per_gpu_mib: int | None = None
    max_time_min: int | None = None
    qos: str = ""
    preempt_mode: str = "OFF"
    priority_tier: int = 1
    exclusive_user: bool = False  # ExclusiveUser=YES: a node is one user's at a time


def suspends(part: PartitionShape | None) -> bool:
    """Whether its jobs are suspended for others, by preemption or gang scheduling."""
    words = set(part.preempt_mode.upper().split(",")) if part else set()
    return bool(words & {"SUSPEND", "GANG"})


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """What colocd knows of the cluster at one time. ``kinds``: of its nodes, by which a submission
    is decided: it costs no more on ten thousand nodes than on ten."""

    name: str
    release: Release
    nodes: tuple[NodeShape, ...] = ()
    partitions: tuple[PartitionShape, ...] = ()
    private_data: frozenset[str] = frozenset()  # words of slurm.conf's PrivateData
    select_params: frozenset[str] = frozenset()  # of SelectTypeParameters
    preempt_type: str = ""  # PreemptType
    #: whether a job that is not eligible yet loses age (core/place/gate_wait)
    age_counts: bool = False
    #: whether jobs' Extra is a constraint on the nodes' (core/place/node_gate)
    constraints: bool = False
    kinds: tuple[NodeKind, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", _kinds(self.nodes))

    @property
    def hides_jobs(self) -> bool:
        """Whether PrivateData hides users' jobs from each other."""
        return "jobs" in self.private_data

    @property
    def hides_owners(self) -> bool:
        """Whether PrivateData hides from users whose jobs run."""
        return not self.private_data.isdisjoint(("jobs", "users"))

    @property
    def keeps_whole_apart(self) -> bool:
        """Whether Slurm never puts a whole-GPU job on a GPU with shard jobs. Where it does, an
        exclusive job must ask for all shards of one GPU."""
        return WHOLE_APART.holds(self.release)

    @property
    def splits_shares(self) -> bool:
        """Whether Slurm may put the shards of one job on several GPUs of a node: under
        MULTIPLE_SHARING_GRES_PJ it splits ``--gres=shard:12`` as 9 + 3 where that fits first (tried
        on 24.11 and 26.05). Only shards per task with one-task-per-sharing stay on one GPU."""
        return MULTI_GPU_PARAMETER in self.select_params

    @property
    def shares_several(self) -> bool:
        """Whether a job can have the same number of shards on each of several GPUs here."""
        return self.splits_shares and SEVERAL_GPUS.holds(self.release)

    @property
    def whole_type(self) -> str | None:
        """The type that a request for a whole GPU must name, because an untyped one may land on a
        MIG device (tried 22.05 and 24.11); None where there is no MIG, or several types of whole
        GPUs, of which Slurm lets a job name only one."""
        if not any(kind.node.slices for kind in self.kinds):
            return None
        types = {kind.node.gpu_type for kind in self.kinds if kind.node.gpus}
        return types.pop() if len(types) == 1 else None

    @property
    def steerable(self) -> frozenset[str]:
        """Models whose GPUs each have a type of their own on some node: Slurm refuses a request by
        such a model's name, and a feature of that name stands for it."""
        nodes = (kind.node for kind in self.kinds)
        return frozenset(node.gpu_type for node in nodes if node.devices and node.gpu_type)

    def partition(self, name: str | None) -> PartitionShape | None:
        """The partition called ``name``; the default one for None."""
        for part in self.partitions:
            if part.name == name or (name is None and part.default):
                return part
        return None


@dataclass(frozen=True, slots=True)
class SharedGpu:
    """A kind of shared GPU that a job may get; ``type`` is set where the job must name it."""

    type: str | None
    shards: int


@dataclass(frozen=True, slots=True)
class MigType:
    """A kind of MIG device that a job may get: its gres type, the MiB that a job can use there, and
    the number of devices."""

    type: str
    mib: int
    count: int


def wanted_partitions(request: JobRequest, shape: ClusterShape) -> tuple[str, ...]:
    """The partitions that the job may run in: those that it names, else the default."""
    if request.partition:
        return request.partitions
    default = shape.partition(None)
    return (default.name,) if default else ()


def nodes_of(request: JobRequest, shape: ClusterShape) -> Iterator[NodeShape]:
    """The GPU nodes of these partitions."""
    wanted = set(wanted_partitions(request, shape))
    return (node for node in shape.nodes if not wanted.isdisjoint(node.partitions))


def node_of_each_kind(request: JobRequest, shape: ClusterShape) -> list[NodeShape]:
    """A node of each kind of GPU node of these partitions."""
    wanted = set(wanted_partitions(request, shape))
    return [one.node for one in shape.kinds if not wanted.isdisjoint(one.node.partitions)]


def keeps_users_apart(partitions: Collection[str], shape: ClusterShape) -> bool:
    """Whether Slurm itself gives a node to one user at a time, in whichever of these partitions a
    job starts. ExclusiveUser of the job's own partition is enough: Slurm then takes no node with
    another user's jobs, of any partition, and lets no other user's job onto it (man slurm.conf;
    slurmctld's _filter_by_node_owner, tried on 22.05 and 24.11)."""
    found = [shape.partition(name) for name in partitions]
    return bool(found) and all(part is not None and part.exclusive_user for part in found)


def plain(wanted: str | None) -> bool:
    """Whether a constraint is a plain list of features (a, a&b, a|b); no other is evaluated."""
    return not wanted or bool(re.fullmatch(r"[\w.-]+(?:(?:[&,][\w.-]+)*|(?:\|[\w.-]+)*)", wanted))


def features_fit(wanted: str | None, present: tuple[str, ...]) -> bool:
    """Evaluates a plain list. Any other constraint counts as fitting, which is used only where all
    GPUs of the partition are shared (may_get_unshared_nodes)."""
    if not wanted or not plain(wanted):
        return True
    if "|" in wanted:
        return any(name in present for name in wanted.split("|"))
    return all(name in present for name in re.split("[&,]", wanted))


def may_get_unshared_nodes(request: JobRequest, shape: ClusterShape) -> bool:
    """Whether the job may be limited to GPU nodes without shards, where a share could never start.

    Named or excluded nodes, a reservation or a complex constraint are not evaluated: they are
    harmless where every GPU node of the partitions has shards.
    """
    bound = request.req_nodes or request.exc_nodes or request.reservation
    if not bound and plain(request.features):
        return False
    return not all(node.shards for node in node_of_each_kind(request, shape))


def fewest_cpus(request: JobRequest, shape: ClusterShape) -> int:
    """CPUs of the smallest node with shards that the job may get; 0 where that is unknown."""
    return min((node.cpus for node in node_of_each_kind(request, shape) if node.shards), default=0)


def _allowed(request: JobRequest, shape: ClusterShape, pool: tuple[str, ...]) -> set[str]:
    """The partitions that the job may start in; none where one of them is not shared."""
    wanted = wanted_partitions(request, shape)
    allowed = {name for name in wanted if not pool or name in pool}
    return allowed if len(allowed) == len(set(wanted)) else set()


def mig_types(
    request: JobRequest, shape: ClusterShape, pool: tuple[str, ...]
) -> tuple[MigType, ...]:
    """The kinds of MIG device that the job may get, smallest memory first; without unknown ones."""
    allowed = _allowed(request, shape, pool)
    counts: dict[str, int] = {}
    for alike in shape.kinds:
        node = alike.node
        if allowed & set(node.partitions) and features_fit(request.features, node.features):
            for kind, count in node.slices:
                counts[kind] = counts.get(kind, 0) + count * alike.count
    found = [
        MigType(kind, mib, count) for kind, count in counts.items() if (mib := slice_mib(kind))
    ]
    return tuple(sorted(found, key=lambda one: (one.mib, one.type)))


def shared_gpus(
    request: JobRequest,
    gpu_type: str | None,
    shape: ClusterShape,
    pool: tuple[str, ...],
    gpus: int = 1,
    nodes: int = 1,
) -> tuple[SharedGpu, ...]:
    """Kinds of shared GPU of which the job may get ``gpus`` on one node, smallest first; () where
    fewer than ``nodes`` have them.

    ``pool`` names the partitions whose GPUs may be shared, () for all that have shards.
    """
    allowed = _allowed(request, shape, pool)
    found = [
        one
        for one in shape.kinds
        if (node := one.node).shards_per_gpu > 0
        and node.gpus >= gpus
        and allowed & set(node.partitions)
        and (gpu_type is None or node.gpu_type == gpu_type)
        and features_fit(request.features, node.features)
    ]
    enough = sum(one.count for one in found) >= nodes
    kinds = {SharedGpu(one.node.gpu_type, one.node.shards_per_gpu) for one in found if enough}
    return tuple(sorted(kinds, key=lambda kind: (kind.shards, kind.type or "")))
