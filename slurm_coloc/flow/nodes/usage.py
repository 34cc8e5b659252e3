# SPDX-License-Identifier: Apache-2.0
"""A run's use record as its node's agent wrote it, checked before anything relies on it.

The record comes inside a report, from a node or through the spool. A forged record can lie only
within these bounds: no endless list, no NaN, no number that a sum or a column overflows by, no
control characters for a terminal. Unknown names of a later release are dropped.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

MAX_PIDS = 64
MAX_EVENTS = 20
MAX_NEIGHBOURS = 32
MAX_GPUS = 64  # as many as a job may have in a report
MAX_POINTS = 120
#: 16 TiB, ninety times the largest card's memory today; figures of one process and one GPU
MAX_MIB = 2**24
MAX_TIME_S = 4_102_444_800.0  # the year 2100
MAX_SAMPLES = 2**31
MAX_JOULES = 1e12  # a kW for thirty years
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _printable(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("control characters")
    return text


Text = Annotated[str, Field(max_length=256), AfterValidator(_printable)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,23}$")]
Uuid = Annotated[str, Field(pattern=r"^[A-Za-z0-9/-]{1,96}$")]
Mib = Annotated[int, Field(ge=0, le=MAX_MIB)]
Time = Annotated[float, Field(ge=0, le=MAX_TIME_S, allow_inf_nan=False)]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Joules = Annotated[float, Field(ge=0, le=MAX_JOULES, allow_inf_nan=False)]
JobId = Annotated[int, Field(ge=1, le=2**32)]
Restart = Annotated[int, Field(ge=0, le=2**16)]
Uid = Annotated[int, Field(ge=0, le=2**32)]
Pid = Annotated[int, Field(ge=1, le=2**22)]  # the kernel's largest
Count = Annotated[int, Field(ge=0, le=2**31)]


class _Bounded(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class UsedGpu(_Bounded):
    """What the run used of one GPU: memory (MiB), activity (0 to 1), energy (J: this run's share,
    the GPU's). None: was not measured."""

    uuid: Uuid
    peak_mib: Mib
    total_mib: Mib | None = None  # of the GPU
    mean_mib: Annotated[float, Field(ge=0, le=MAX_MIB, allow_inf_nan=False)] | None = None
    smact_mean: Ratio | None = None
    smact_max: Ratio | None = None
    smocc_mean: Ratio | None = None
    dram_mean: Ratio | None = None
    smact_how: Literal["alone", "split", "mig"] | None = None
    energy_j: Joules | None = None
    gpu_energy_j: Joules | None = None
    neighbours_max: Annotated[int, Field(ge=0, le=4096)] | None = None


class UsedPid(_Bounded):
    """One process. Its start (epoch) tells it from a later one of the same number."""

    pid: Pid
    start_s: Time
    uuid: Uuid
    peak_mib: Mib


class HeldBy(_Bounded):
    """Memory that another job held at the same moment."""

    job_id: JobId
    held_mib: Mib
    processes: Annotated[int, Field(ge=1, le=2**22)] = 1


class LastSample(_Bounded):
    """The last sample in which the run held memory; before it first did, the newest."""

    at_s: Time
    held_mib: Mib
    gpu_free_mib: Mib | None = None
    neighbours: tuple[HeldBy, ...] = Field((), max_length=MAX_NEIGHBOURS)
    foreign_mib: Mib | None = None


class UsedNeighbour(_Bounded):
    """Another job on the same GPU, and for how long."""

    job_id: JobId
    restart: Restart | None = None
    uid: Uid | None = None
    overlap_s: Time


class UsedEvent(_Bounded):
    """An event of its GPU during the run. Those of an overrun (core/gpu/overrun) have figures:
    ``begun``; ``over``, with the most that it held; ``ended``, the agent ends the processes;
    ``left``, it could not."""

    at_s: Time
    kind: Literal["idle", "gpu-lost", "xid", "foreign", "mps-fault", "driver", "overrun"]
    text: Text = ""
    state: Literal["begun", "over", "ended", "left"] | None = None
    uuid: Uuid | None = None
    held_mib: Mib | None = None
    promised_mib: Mib | None = None


class Series(_Bounded):
    """Memory (MiB, the maximum of a step) and SM activity (mean of a step) over the run; None: no
    sample in that step."""

    start_s: Time
    step_s: Annotated[float, Field(gt=0, le=MAX_TIME_S, allow_inf_nan=False)]
    memory_mib: tuple[Mib | None, ...] = Field((), max_length=MAX_POINTS)
    smact: tuple[Ratio | None, ...] = Field((), max_length=MAX_POINTS)

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        if self.smact and len(self.smact) != len(self.memory_mib):
            raise ValueError("the series of activity and memory differ in length")
        return self


Number = Annotated[float, Field(ge=0, le=MAX_JOULES, allow_inf_nan=False)]


class DcgmGpu(_Bounded):
    """DCGM's job statistics of one GPU (adapters/dcgm/jobs); None: DCGM had no value. Utilization
    is NVML's; slow_*: the part of the time in which clocks were lowered for that reason."""

    uuid: Uuid
    lasted_s: Number | None = None
    energy_j: Joules | None = None
    power_w: Number | None = None
    max_mib: Mib | None = None
    utilization: Ratio | None = None
    memory_utilization: Ratio | None = None
    pcie_rx_mb_s: Number | None = None
    pcie_tx_mb_s: Number | None = None
    ecc_single: Count | None = None
    ecc_double: Count | None = None
    pcie_replays: Count | None = None
    xids: Count | None = None
    slow_power: Ratio | None = None
    slow_thermal: Ratio | None = None
    slow_reliability: Ratio | None = None
    slow_board: Ratio | None = None
    slow_sync: Ratio | None = None


class DcgmJob(_Bounded):
    """DCGM's job statistics of a run that had its GPUs to itself, as last read."""

    at_s: Time
    gpus: tuple[DcgmGpu, ...] = Field((), max_length=MAX_GPUS)


class UsedFence(_Bounded):
    """What held the run's memory and its limit (MiB), as it was read back: of MPS the largest that
    its server had meanwhile, for each process. None: it was not read back."""

    level: Literal["mps", "cgroup"]
    limit_mib: Mib | None = None


class UsedRecord(_Bounded):
    """The ``use`` record, version 1."""

    v: Literal[1]
    job_id: JobId
    restart: Restart
    since_s: Time
    until_s: Time
    samples: Annotated[int, Field(ge=0, le=MAX_SAMPLES)]
    complete: bool = False  # no memory of the run was missed, so its peaks are exact
    sources: dict[Name, Name | None] = Field(default_factory=dict, max_length=16)
    why: dict[Name, Text] = Field(default_factory=dict, max_length=16)
    gpus: tuple[UsedGpu, ...] = Field((), max_length=MAX_GPUS)
    pids: tuple[UsedPid, ...] = Field((), max_length=MAX_PIDS)
    last: LastSample | None = None
    neighbours: tuple[UsedNeighbour, ...] = Field((), max_length=MAX_NEIGHBOURS)
    events: tuple[UsedEvent, ...] = Field((), max_length=MAX_EVENTS)
    series: Series | None = None
    fence: UsedFence | None = None
    dcgm: DcgmJob | None = None
    left_out: dict[Name, Count] | Count | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.until_s < self.since_s:
            raise ValueError("ends before it begins")
        if len({gpu.uuid for gpu in self.gpus}) != len(self.gpus):
            raise ValueError("a GPU is listed twice")
        if isinstance(self.left_out, dict) and len(self.left_out) > 16:
            raise ValueError("too many names of what was left out")
        return self


def read(value: Any, job_id: int, restart: int | None) -> tuple[UsedRecord | None, str]:
    """The record of this run, or None and what is wrong with it, in at most 200 characters. Never
    raises: a report without a valid record is still the report of an end.

    Never raises: a report whose use is nonsense is still the report of an end."""
    try:
        found = UsedRecord.model_validate(_tuples(value))
    except ValidationError as err:
        first = err.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part)[:32] for part in first["loc"][:4])
        return None, _CONTROL.sub("?", f"used: {where}: {first['msg']}")[:200]
    except RecursionError:
        return None, "used: nested too deeply"
    if found.job_id != job_id or (restart is not None and found.restart != restart):
        return None, "used: that of another run"
    return found, ""


def _tuples(value: Any) -> Any:
    """Lists of parsed JSON as the tuples that a strict model wants. Raises RecursionError."""
    if isinstance(value, dict):
        return {name: _tuples(each) for name, each in value.items()}
    if isinstance(value, list):
        return tuple(_tuples(each) for each in value)
    return value
