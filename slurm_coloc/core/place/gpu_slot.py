# SPDX-License-Identifier: Apache-2.0
"""GPUs and jobs as a placement policy sees them: requests, residents, slots and their nodes."""

from dataclasses import dataclass, field

from slurm_coloc.core.place.activity import Activity

INF = float("inf")


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """A job that waits: what it asks for and what is expected of it.

    ``gpus``: GPUs, of one node where one has so many. ``need_mib``: what is reserved on each of
    them; None: no estimate. ``activity``: expected alone. ``run_s``: seconds that it is expected to
    run alone; ``run_spread``: the standard deviation of their logarithm. ``share``: False for a job
    that gets whole GPUs. ``idle_only``: it starts on idle GPUs; others may join it there.
    ``max_slowdown``: its time beside others over its time alone that it must not pass. ``cpus`` and
    ``host_mib``: of its nodes, for the whole job; over several nodes in proportion to its GPUs
    there.
    """

    id: int
    gpus: int
    need_mib: int | None
    activity: Activity | None
    submit_s: float
    run_s: float | None = None
    user: str = ""
    account: str = ""
    share: bool = True
    idle_only: bool = False
    max_slowdown: float | None = None
    cpus: int = 0
    host_mib: int = 0
    run_spread: float = 0.0


@dataclass(slots=True)
class Resident:
    """A job on a GPU. ``ends_s``: when it is expected to end at its present speed; ``left_s``:
    seconds alone that it had to go when its speed last changed."""

    request: PlaceRequest
    ends_s: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What telemetry said last of a GPU: MiB free, and activities over its window (ratios)."""

    free_mib: int
    smact: float = 0.0
    smocc: float = 0.0
    drama: float = 0.0


@dataclass(slots=True, eq=False)
class Host:
    """What is free on a node besides GPUs. ``limited``: CPUs or memory can run short. ``version``:
    raised whenever a job of the node comes, goes or is expected to end at another time."""

    node: int
    cpus: float = INF
    host_mib: float = INF
    limited: bool = True
    version: int = 0

    def holds(self, request: PlaceRequest, gpus: int = 1) -> bool:
        """Whether so many of a job's GPUs could be served here."""
        if not self.limited:
            return True
        part = gpus / request.gpus
        return (
            request.cpus * part <= self.cpus + 1e-9
            and request.host_mib * part <= self.host_mib + 1e-6
        )

    def take(self, request: PlaceRequest, gpus: int) -> None:
        """A job starts on so many GPUs of this node; fewer than none: it leaves them."""
        self.version += 1
        part = gpus / request.gpus
        self.cpus -= request.cpus * part
        self.host_mib -= request.host_mib * part


@dataclass(slots=True, eq=False)
class GpuSlot:
    """One GPU, or one MIG instance, that jobs can be put on.

    ``usable_mib``: what can be reserved. ``method``: how its jobs share it (METHODS of
    core/place/interference). ``fraction``: of the GPU's SMs. ``pool``: whether jobs may share it.
    ``gpu``: number of the GPU that it is or is a part of. ``part``: it is a MIG instance.
    ``for_whole``: a job that wants a GPU for itself may have it. ``half_mib``: what each of two MIG
    instances offers that an idle GPU can be cut into (0: never), and ``half``: their fraction.
    ``multi_user``: its MPS server serves several users at once. ``host``: its node's CPUs and
    memory; None: not known, never short.

    ``reserved_mib``: of its jobs and of those on compute instances of the same memory. ``smact``:
    sum of what its jobs keep busy alone. ``whole``: a resident has it for itself. ``settled``:
    False while a job that was just launched does not show in telemetry yet.
    """

    index: int
    node: int
    kind: str
    usable_mib: int
    method: str = "mps"
    fraction: float = 1.0
    pool: bool = True
    residents: list[Resident] = field(default_factory=list)
    reserved_mib: int = 0
    smact: float = 0.0
    whole: bool = False
    settled: bool = True
    measured: Measured | None = None
    gpu: int = -1
    part: bool = False
    for_whole: bool = True
    half_mib: int = 0
    half: float = 1.0
    multi_user: bool = True
    host: Host | None = None

    @property
    def idle(self) -> bool:
        """No job is on it."""
        return not self.residents

    @property
    def free_mib(self) -> int:
        """MiB free: as telemetry shows it, or by the plan where it shows nothing."""
        if self.measured is not None:
            return self.measured.free_mib
        return self.usable_mib - self.reserved_mib

    @property
    def shown_smact(self) -> float:
        """SM activity of its own SMs as telemetry shows it, or the sum of what is expected."""
        return self.smact / self.fraction if self.measured is None else self.measured.smact

    def fraction_for(self, request: PlaceRequest) -> float:
        """Fraction of the GPU's SMs that a job can use here."""
        return self.half if self.halves(request) else self.fraction

    def halves(self, request: PlaceRequest) -> bool:
        """Whether a GPU that MIG cuts at will is cut in two for this job."""
        need = request.need_mib
        return bool(self.half_mib) and request.share and need is not None and need <= self.half_mib
