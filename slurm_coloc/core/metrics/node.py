# SPDX-License-Identifier: Apache-2.0
"""The series of a node's agent, from what it knows now.

A figure that is not known has no series. What can only be divided between jobs is divided as
core/gpu/telemetry/reading says; what cannot (occupancy, DRAM, PCIe) is told of jobs that are alone.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from slurm_coloc.core.gpu.telemetry.reading import Reading
from slurm_coloc.core.metrics import catalog as m
from slurm_coloc.core.metrics.series import Histogram, Series, single

MIB = 2**20
MOST = 1024  # jobs on GPUs that are told: 64 devices with 16 jobs each
Share = tuple[int, str]  # job, UUID of the device


class Owner(NamedTuple):
    """Of a job; names are "" where they are not known, or hidden from users."""

    uid: str = ""
    user: str = ""
    account: str = ""


@dataclass(frozen=True, slots=True)
class JobNow:
    """A job on a device. ``promised_mib``: of it, None where that is not known; ``smact``: its
    part, a mean."""

    job_id: int
    owner: Owner
    method: str
    promised_mib: int | None
    smact: float | None


@dataclass(frozen=True, slots=True)
class GpuNow:
    """A device: its last sample, means of the activity and the power, and its jobs."""

    reading: Reading
    smact: float | None
    power_w: float | None
    jobs: tuple[JobNow, ...]


@dataclass(frozen=True, slots=True)
class NodeNow:
    """``over_mib``: what jobs hold above their promise; ``idle_s``: of jobs that hold a GPU
    without activity; ``age_s``: of the last sample, None before the first."""

    version: str
    linked: bool
    spooled: int
    age_s: float | None
    gpus: tuple[GpuNow, ...]
    over_mib: Mapping[Share, int]
    idle_s: Mapping[int, float]
    overruns: int
    prolog: Histogram
    epilog: Histogram


def of_node(now: NodeNow, names: Collection[m.Names]) -> list[Series]:
    """The series of a node, in the order of the catalog."""
    pairs = [(gpu, job) for gpu in now.gpus for job in gpu.jobs]
    told = pairs[:MOST]
    series: list[Series] = []
    if "coloc" in names:
        series += [*_of_jobs(told, now.over_mib), _idle(now.idle_s), *_of_gpus(now.gpus)]
        series += [
            Series(m.AGENT, [((now.version,), 1.0)]),
            single(m.AGENT_LINKED, float(now.linked)),
            single(m.AGENT_SPOOLED, float(now.spooled)),
            single(m.AGENT_AGE, now.age_s),
            single(m.LEFT_OUT, float(len(pairs) - len(told))),
            single(m.OVERRUNS, float(now.overruns)),
            single(m.PROLOG, now.prolog),
            single(m.EPILOG, now.epilog),
        ]
    if "slurm_job" in names:
        series += _slurm_job(told)
    if "nvidia_gpu" in names:
        series += _nvidia_gpu(told, now.gpus)
    return series


def _device(reading: Reading) -> tuple[str, str, str]:
    """gpu, UUID, GPU_I_ID."""
    if not reading.mig:
        return str(reading.index), reading.uuid, ""
    name = f"{reading.index}:{reading.instance}"
    if reading.compute:  # several compute instances may be in one GPU instance
        name += f":{reading.compute}"
    return name, reading.gpu_uuid, str(reading.instance)


def _bytes(mib: int | None) -> float | None:
    return None if mib is None else float(mib * MIB)


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _power(gpu: GpuNow, job: JobNow) -> float | None:
    """W; a job that has the GPU and holds nothing there yet takes what an idle GPU takes."""
    reading = gpu.reading
    return reading.part(gpu.power_w, job.job_id) if reading.held else gpu.power_w


def _of_jobs(pairs: Iterable[tuple[GpuNow, JobNow]], over: Mapping[Share, int]) -> list[Series]:
    found = [Series(metric) for metric in m.OF_JOBS]
    info, memory, reserved, activity, power, overrun = found
    for gpu, job in pairs:
        reading, owner = gpu.reading, job.owner
        name, device = str(job.job_id), _device(gpu.reading)
        labels = (name, *device)
        info.add((name, owner.user, owner.account, job.method, *device, reading.name), 1.0)
        memory.add(labels, _bytes(reading.mib_of(job.job_id)))
        reserved.add(labels, _bytes(job.promised_mib))
        activity.add(labels, job.smact)
        power.add(labels, _power(gpu, job))
        overrun.add(labels, _bytes(over.get((job.job_id, reading.uuid))))
    return found


def _idle(idle_s: Mapping[int, float]) -> Series:
    return Series(m.JOB_IDLE, [((str(job_id),), since) for job_id, since in idle_s.items()])


def _of_gpus(gpus: Iterable[GpuNow]) -> list[Series]:
    found = [Series(metric) for metric in m.OF_GPUS]
    for gpu in gpus:
        reading = gpu.reading
        values = (
            _bytes(reading.total_mib),
            _bytes(reading.total_mib - reading.free_mib),
            _bytes(sum(job.promised_mib or 0 for job in gpu.jobs)),
            _bytes(reading.foreign_mib),
            gpu.smact,
            gpu.power_w,
            float(len(gpu.jobs)),
        )
        for series, value in zip(found, values, strict=True):
            series.add(_device(reading), value)
    return found


def _slurm_job(pairs: Iterable[tuple[GpuNow, JobNow]]) -> list[Series]:
    found = [Series(metric) for metric in m.OF_AGENT["slurm_job"]]
    used, total, power, busy, dram, occupancy, pcie = found
    for gpu, job in pairs:
        reading, owner, job_id = gpu.reading, job.owner, job.job_id
        # That exporter names a MIG device by its UUID.
        device = reading.uuid if reading.mig else str(reading.index)
        labels = (owner.user, owner.account, str(job_id), device, reading.name)
        used.add(labels, _bytes(reading.mib_of(job_id)))
        total.add(labels, _bytes(job.promised_mib))
        power.add(labels, _times(_power(gpu, job), 1000.0))
        activity = reading.busy(job_id) if job.smact is None else job.smact
        busy.add(labels, _times(activity, 100.0))
        if len(gpu.jobs) == 1 and reading.how(job_id) != "split":
            profile = reading.profile
            dram.add(labels, _times(profile.dram, 100.0))
            occupancy.add(labels, _times(profile.smocc, 100.0))
            pcie.add((*labels, "TX"), _times(profile.pcie_tx_mib_s, MIB))
            pcie.add((*labels, "RX"), _times(profile.pcie_rx_mib_s, MIB))
    return found


def _nvidia_gpu(pairs: Iterable[tuple[GpuNow, JobNow]], gpus: Iterable[GpuNow]) -> list[Series]:
    found = [Series(metric) for metric in m.OF_AGENT["nvidia_gpu"]]
    ids, uids, duty, used, total, power = found
    for gpu, job in pairs:
        reading, job_id = gpu.reading, job.job_id
        labels = (*_card(reading), str(job_id), job.owner.uid)
        ids.add(labels, float(job_id))
        uids.add(labels, float(job.owner.uid) if job.owner.uid else None)
        time = reading.busy(job_id)
        duty.add(labels, _times(job.smact if time is None else time, 100.0))
        used.add(labels, _bytes(reading.mib_of(job_id)))
        total.add(labels, _bytes(job.promised_mib))
        power.add(labels, _times(_power(gpu, job), 1000.0))
    for gpu in gpus:
        if not gpu.jobs:
            reading = gpu.reading
            labels = (*_card(reading), "", "")
            ids.add(labels, 0.0)
            duty.add(labels, _times(gpu.smact, 100.0))
            used.add(labels, _bytes(reading.total_mib - reading.free_mib))
            total.add(labels, _bytes(reading.total_mib))
            power.add(labels, _times(gpu.power_w, 1000.0))
    return found


def _card(reading: Reading) -> tuple[str, str, str, str, str]:
    """ordinal, minor_number, uuid, name, GPU_I_ID."""
    minor = "" if reading.minor is None else str(reading.minor)
    instance = str(reading.instance) if reading.mig else ""
    return str(reading.index), minor, reading.uuid, reading.name, instance
