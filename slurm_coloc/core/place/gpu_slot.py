# SPDX-License-Identifier: Apache-2.0
"""GPUs and jobs as a placement policy sees them: requests, residents, slots and their nodes."""

from dataclasses import dataclass, field

from slurm_coloc.core.place.activity import Activity

INF = float("inf")


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """A waiting job: its request and what is expected of it.

    ``gpus``: on one node where one is large enough. ``need_mib``: reserved on each of them; None:
    no estimate. ``activity``: expected alone. ``run_s``: seconds that it is expected to run alone;
    ``run_spread``: the standard deviation of their logarithm. ``share``: False for a job that gets
    whole GPUs. ``idle_only``: it starts on idle GPUs; others may join it there. ``max_slowdown``:
    the highest allowed time beside others over time alone. ``cpus`` and ``host_mib``: of its nodes,
    for the whole job; over several nodes in proportion to its GPUs there.
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
    """A job on a GPU. ``ends_s``: its expected end at its present speed; ``left_s``: seconds alone
    that were left when its speed last changed."""

    request: PlaceRequest
    ends_s: float | None = None
    left_s: float | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """The last telemetry of a GPU: MiB free, and activities over its window (ratios)."""

    free_mib: int
    smact: float = 0.0
    smocc: float = 0.0
    drama: float = 0.0


@dataclass(slots=True, eq=False)
class Host:
    """The free CPUs and memory of a node. ``limited``: they can run short. ``version``: raised
    whenever a job of the node starts, leaves or gets another expected end."""

    node: int
    cpus: float = INF
    host_mib: float = INF
    limited: bool = True
    version: int = 0

    def holds(self, request: PlaceRequest, gpus: int = 1) -> bool:
        """Whether the node has CPUs and memory for so many of the job's GPUs."""
        if not self.limited:
            return True
        part = gpus / request.gpus
        return (
            request.cpus * part <= self.cpus + 1e-9
            and request.host_mib * part <= self.host_mib + 1e-6
        )

    def take(self, request: PlaceRequest, gpus: int) -> None:
        """Take CPUs and memory for a job on so many GPUs here; a negative number returns them."""
        self.version += 1
        part = gpus / request.gpus
        self.cpus -= request.cpus * part
        self.host_mib -= request.host_mib * part


@dataclass(slots=True, eq=False)
class GpuSlot:
    """One GPU, or one MIG instance, that jobs can be put on.

    ``usable_mib``: MiB that can be reserved. ``method``: how its jobs share it (METHODS of
    core/place/interference). ``fraction``: of the GPU's SMs. ``pool``: jobs may share it. ``gpu``:
    number of the GPU that it is, or is a part of. ``part``: it is a MIG instance. ``for_whole``: a
    job that wants a GPU for itself may have it. ``half_mib``: memory of each of the two MIG
    instances that an idle GPU can be cut into (0: never), and ``half``: their fraction.
    ``multi_user``: its MPS server serves several users at once. ``host``: its node's CPUs and
    memory; None: not known, never short. ``card``: NVML's name of the GPU, "" where that is not
    known.

    ``reserved_mib``: of its jobs and of those on compute instances of the same memory. ``smact``:
    sum of its jobs' activities alone. ``whole``: a resident has it for itself. ``settled``: False
    while telemetry does not show a job that was just started.
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
    card: str = ""

    @property
    def idle(self) -> bool:
        return not self.residents

    @property
    def free_mib(self) -> int:
        """MiB free by telemetry, or by the plan without telemetry."""
        if self.measured is not None:
            return self.measured.free_mib
        return self.usable_mib - self.reserved_mib

    @property
    def shown_smact(self) -> float:
        """SM activity of its own SMs by telemetry, or the sum of the expected ones."""
        return self.smact / self.fraction if self.measured is None else self.measured.smact

    def fraction_for(self, request: PlaceRequest) -> float:
        """Fraction of the GPU's SMs that a job can use here."""
        return self.half if self.halves(request) else self.fraction

    def halves(self, request: PlaceRequest) -> bool:
        """Whether MIG cuts an idle GPU in two for this job."""
        need = request.need_mib
        return bool(self.half_mib) and request.share and need is not None and need <= self.half_mib
