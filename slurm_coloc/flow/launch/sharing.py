# SPDX-License-Identifier: Apache-2.0
"""Stage launch and finish, the shared GPU: MPS for the job, and the file for slurmstepd.

<run_dir>/<job id>.share tells the SPANK plugin what the tasks of this run get; see spank/README.md.
It is written for every job of ours; the plugin, which knows whether this
step does, sets the environment and says in the job's output what stands between the job and its
neighbours.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import cgroup, nvml, procs
from slurm_coloc.adapters.hookenv import HookCall, HookSettings
from slurm_coloc.adapters.mps import node
from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob
from slurm_coloc.core.gpu import fence
from slurm_coloc.core.gpu.sharing import Chosen, Method, Rules, method_on
from slurm_coloc.errors import GpuError

#: GPUs of one job whose UUIDs the file has room for
MAX_LIMITED = 32
#: the same, each with a pipe (spank/own_gpu.c)
MAX_OWN = 16

Device = Mapping[str, Any]


def prepare(call: HookCall, state: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Set up what the run needs; what was done, for the state, and the text of the .share file.
    Never fails: what cannot be had is a reason."""
    if _whole(state):
        return {"method": Method.ALONE.value, "reason": ""}, _alone(state)
    devices = state["gpu"].get("devices", [])
    levels = [_frameworks(call.settings)]
    try:
        levels += _kernels_limit(call, state["reservation"], devices)
        found, lines = _mps(call, devices, _share_mib(state["reservation"]))
    except Exception as err:  # of whatever kind: the job's output must say that it is not fenced
        why = str(getattr(err, "message", "")) or type(err).__name__
        found, lines = Chosen(Method.STREAMS, f"MPS cannot be set up: {why}"), []
    text = _text(call.settings, state, found, [*levels, *lines])
    lacks = _lacks(call, devices) if found.method is Method.MPS else []
    return {"method": found.method.value, "reason": found.reason, "lacks": lacks}, text


def _lacks(call: HookCall, devices: list[Device]) -> list[str]:
    """What the run's MPS daemons could not be given on this node, for slurmd's log."""
    with contextlib.suppress(Exception):  # they run, and that is what counts
        return sorted({one for device in devices for one in _gpu(call, device).lacks})
    return []


def meanwhile(settings: HookSettings, state: Mapping[str, Any]) -> str:
    """The text of the .share file for a Prolog that is ended before ``prepare`` has answered: the
    job's output tells then that it is not fenced."""
    if _whole(state):
        return _alone(state)
    found = Chosen(Method.STREAMS, "the Prolog was ended before MPS was set up")
    return _text(settings, state, found, [_frameworks(settings)])


def _alone(state: Mapping[str, Any]) -> str:
    """The .share file of a run on whole GPUs: it is measured, so frameworks must not take them at
    once (spank/frameworks.c)."""
    return "\n".join(["share 1", "method alone", *_visible(state["gpu"])]) + "\n"


def _whole(state: Mapping[str, Any]) -> bool:
    """Whether the run has whole GPUs, which it shares with nobody."""
    held = state["reservation"]
    return bool(held["available"]) and held["shards"] == 0


def _share_mib(held: Mapping[str, Any]) -> int:
    """What the run was promised of each of its GPUs; 0 where that is not known."""
    return int(held["shards"]) * int(held["shard_mib"]) if held["available"] else 0


def _text(settings: HookSettings, state: Mapping[str, Any], found: Chosen, more: list[str]) -> str:
    """Of the .share file; ``more``: lines of the fence levels."""
    devices = state["gpu"].get("devices", [])
    size = f"shard_mib {_shard_mib(settings, state)}"
    lines = [f"method {found.method}", size, *_visible(state["gpu"])]
    if len(devices) == 1:
        lines.append(f"uuid {devices[0]['uuid']}")
    # A figure that NVML did not give is an object with the reason.
    sizes = [one["total_mib"] for one in devices if isinstance(one["total_mib"], int)]
    if sizes:
        lines.append(f"gpu_mib {min(sizes)}")
    lines += more
    if found.reason:
        lines.append(f"why {found.reason}")
    return "\n".join(["share 1", *lines]) + "\n"


def _shard_mib(settings: HookSettings, state: Mapping[str, Any]) -> int:
    """MiB of one share. A MIG device is one of its own size: where colocd has not answered in time,
    a job there must not be held to a shard of the configuration, which is far less."""
    held, devices = state["reservation"], state["gpu"].get("devices", [])
    if "shard_mib" in held:
        return int(held["shard_mib"])
    if len(devices) == 1 and str(devices[0]["uuid"]).startswith("MIG-"):
        # Compute instances of one GPU instance share its memory: each has a part of it.
        total = devices[0].get("slice_mib") or devices[0]["total_mib"]
        if isinstance(total, int):
            return total
    return settings.shard_mib


def _visible(gpu: Mapping[str, Any]) -> list[str]:
    """The line that names the run's GPUs or MIG devices where Slurm's numbers, which it puts into
    CUDA_VISIBLE_DEVICES, are not CUDA's."""
    if not gpu.get("renumbered") or not gpu.get("devices"):
        return []
    return [f"visible {','.join(str(one['uuid']) for one in gpu['devices'])}"]


def _frameworks(settings: HookSettings) -> str:
    """Which tasks are given their framework's own limit."""
    return f"frameworks {settings.frameworks}"


def _kernels_limit(call: HookCall, held: Mapping[str, Any], devices: list[Device]) -> list[str]:
    """The memory limit of the job's cgroup and who sets it, where the kernel can hold the job."""
    if not held["available"] or not _by_kernel(call, devices):
        return []
    config = call.environ.get("COLOC_CONFIG", "")
    return [
        f"cgroup_mib {_share_mib(held)}",
        f"cgroup_uuids {','.join(str(one['uuid']) for one in devices)}",
        f"program {call.environ['COLOC_PROGRAM']}",
        *([f"config {config}"] if config else []),
    ]


def _by_kernel(call: HookCall, devices: list[Device]) -> bool:
    """Whether the kernel may hold the job: whole GPUs, cgroup v2, a driver that knows it."""
    settings = call.settings
    if settings.cgroup == "off" or not call.environ.get("COLOC_PROGRAM", "").startswith("/"):
        return False
    whole = [one for one in devices if str(one["uuid"]).startswith("GPU-")]
    if not 0 < len(devices) == len(whole) <= MAX_LIMITED:
        return False
    return cgroup.unified() and fence.has_limits(_driver(settings))


def _driver(settings: HookSettings) -> str:
    if not settings.nvml:
        return ""
    try:
        with nvml.Nvml() as lib:
            return lib.driver()
    except GpuError:
        return ""


def unfenced(call: HookCall, gpu: Mapping[str, Any]) -> str:
    """Why neither MPS nor the kernel would hold this job's memory; "" where one would, as far as
    can be told before anything is set up."""
    devices = gpu.get("devices", [])
    if _by_kernel(call, devices):
        return ""
    if len(devices) != 1:
        return _several(devices)
    if str(devices[0]["uuid"]).startswith("MIG-"):
        return ""  # no other job is in it
    try:
        return _gpu(call, devices[0]).would_join(_run(call), _rules(call, devices[0])).reason
    except Exception as err:  # of whatever kind: the look at the GPU goes on
        return f"MPS cannot be looked at: {type(err).__name__}"


def _mps(call: HookCall, devices: list[Device], share_mib: int) -> tuple[Chosen, list[str]]:
    """Set MPS up: the method, and the lines of the file."""
    threads = call.settings.thread_percentage
    percentage = [f"threads {threads}"] if threads else []
    if len(devices) == 1:
        found, pipe = _join(call, devices[0], share_mib)
        if pipe is None:
            return found, []
        bound_mib = _gpu(call, devices[0]).bound_mib(_run(call))
        verified = [f"limit {bound_mib}"] if bound_mib else []
        return found, [f"pipe {pipe}", f"log {pipe.parent / 'log'}", *verified, *percentage]
    why = _several(devices)
    if call.settings.several_gpus == "tasks" and 1 < len(devices) <= MAX_OWN:
        own, why = _own(call, devices, why, share_mib)
        return Chosen(Method.STREAMS, why), [*own, *(percentage if own else [])]
    return Chosen(Method.STREAMS, why + (", and an MPS daemon serves one" if devices else "")), []


def _own(call: HookCall, devices: list[Device], why: str, share_mib: int) -> tuple[list[str], str]:
    """MPS on each of the job's GPUs, for tasks that have one of them: the lines, and the reason
    that the other tasks are given. All or none: tasks of one training should not differ."""
    lines = []
    for place, device in enumerate(devices):
        minor = device.get("minor")
        found, pipe = _join(call, device, share_mib)
        if pipe is None or not isinstance(minor, int):
            leave(call, [])
            return [], f"{why}, and on one of them {found.reason or 'no number'}"
        number = call.job.numbers[place] if call.job.numbers else minor
        lines.append(f"task {minor} {device['uuid']} {pipe.parent} {number}")
    return lines, f"{why}; a task with one of them is a client of its MPS"


def _several(devices: list[Device]) -> str:
    return "the job has several GPUs here" if devices else "the GPU is not known"


def _join(call: HookCall, device: Device, share_mib: int) -> tuple[Chosen, Path | None]:
    total = device.get("total_mib")  # an object with the reason where NVML does not tell it
    total_mib = total if isinstance(total, int) else 0
    return _gpu(call, device).join(_run(call), _rules(call, device), share_mib, total_mib)


def _rules(call: HookCall, device: Device) -> Rules:
    """What the site wants of this GPU."""
    minor = device.get("minor")  # an object with the reason where NVML does not tell it
    known = minor if isinstance(minor, int) else None
    settings = call.settings
    method = method_on(settings.method, settings.rules, call.job.node, str(device["uuid"]), known)
    return Rules(method, settings.users)  # type: ignore[arg-type]


def leave(call: HookCall, notes: list[str]) -> None:
    """Give back what ``prepare`` took, for this run or an earlier one; a fault is a note. Clients
    that the job leaves behind are ended: their memory is other jobs' now."""
    job, settings = call.job, call.settings

    def mine(pid: int) -> bool:
        found = procs.find(pid, {job.job_id: job.uid}.get)
        return found is not None and found.job_id == job.job_id

    faults = node.leave(settings.run_dir, settings.mps_control, call.environ, _run(call), mine)
    notes += [f"MPS: {fault}" for fault in faults]


def bound_mib(call: HookCall, devices: list[Device]) -> int | None:
    """The most of a GPU that MPS let a process of this run have, as its servers' limits were read
    back; None where one was not."""
    bounds = [_gpu(call, device).bound_mib(_run(call)) for device in devices]
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known and len(known) == len(bounds) else None


def _gpu(call: HookCall, device: Device) -> Gpu:
    settings = call.settings
    return Gpu(settings.run_dir, str(device["uuid"]), settings.mps_control, call.environ)


def _run(call: HookCall) -> MpsJob:
    job = call.job
    return MpsJob(job.job_id, job.restart, job.uid, job.gid)
