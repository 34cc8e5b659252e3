# SPDX-License-Identifier: Apache-2.0
"""Stage launch and finish, the shared GPU: MPS for the job, and the file for slurmstepd.

<run_dir>/<job id>.share tells the SPANK plugin what the tasks of this run get; see spank/README.md.
It is written for every job of ours that may run on shards; the plugin, which knows whether this
step does, sets the environment and says in the job's output what stands between the job and its
neighbours.
"""

from collections.abc import Mapping
from typing import Any

from slurm_coloc.adapters import cgroup, hookenv, nvml, procs
from slurm_coloc.adapters.mps import node
from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob
from slurm_coloc.core.gpu import fence
from slurm_coloc.core.gpu.sharing import Chosen, Method, Rules, method_on
from slurm_coloc.errors import GpuError

#: GPUs of one job whose UUIDs the file has room for
MAX_LIMITED = 32
#: the same, each with a pipe (spank/own_gpu.c)
MAX_OWN = 16


def prepare(
    job: hookenv.HookJob,
    settings: hookenv.HookSettings,
    state: Mapping[str, Any],
    environ: Mapping[str, str],
) -> tuple[dict[str, Any], str]:
    """Set up what the run needs; what was done, for the state, and the text of the .share file.
    Never fails: what cannot be had is a reason."""
    devices = state["gpu"].get("devices", [])
    if _whole(state):
        visible = _visible(state["gpu"])
        text = "\n".join(["share 1", "method alone", *visible]) + "\n" if visible else ""
        return {"method": Method.ALONE.value, "reason": ""}, text
    ladder = [_frameworks(settings)]
    try:
        ladder = _ladder(settings, state["reservation"], devices, environ)
        found, lines = _mps(job, settings, devices, environ)
    except Exception as err:  # of whatever kind: the job must hear that it is not fenced
        why = str(getattr(err, "message", "")) or type(err).__name__
        found, lines = Chosen(Method.STREAMS, f"MPS cannot be set up: {why}"), []
    text = _text(settings, state, found, [*ladder, *lines])
    return {"method": found.method.value, "reason": found.reason}, text


def meanwhile(settings: hookenv.HookSettings, state: Mapping[str, Any]) -> str:
    """The text of the .share file for a Prolog that is ended before ``prepare`` has answered: the
    job's output tells then that it is not fenced. "" where there is nothing to tell."""
    if _whole(state):
        return ""
    found = Chosen(Method.STREAMS, "the Prolog was ended before MPS was set up")
    return _text(settings, state, found, [_frameworks(settings)])


def _whole(state: Mapping[str, Any]) -> bool:
    """Whether the run has whole GPUs: nobody to be fenced from."""
    held = state["reservation"]
    return bool(held["available"]) and held["shards"] == 0


def _text(
    settings: hookenv.HookSettings, state: Mapping[str, Any], found: Chosen, more: list[str]
) -> str:
    """Of the .share file; ``more``: lines of the rungs."""
    devices = state["gpu"].get("devices", [])
    shard_mib = state["reservation"].get("shard_mib", settings.shard_mib)
    lines = [f"method {found.method}", f"shard_mib {shard_mib}", *_visible(state["gpu"])]
    if len(devices) == 1:
        lines.append(f"uuid {devices[0]['uuid']}")
    # What NVML did not tell is an object with the reason.
    sizes = [one["total_mib"] for one in devices if isinstance(one["total_mib"], int)]
    if sizes:
        lines.append(f"gpu_mib {min(sizes)}")
    lines += more
    if found.reason:
        lines.append(f"why {found.reason}")
    return "\n".join(["share 1", *lines]) + "\n"


def _mps(
    job: hookenv.HookJob,
    settings: hookenv.HookSettings,
    devices: list[dict[str, Any]],
    environ: Mapping[str, str],
) -> tuple[Chosen, list[str]]:
    """Set MPS up: the method, and the lines of the file."""
    found, pipe = _join(job, settings, devices, environ)
    own: list[str] = []
    if settings.several_gpus == "tasks" and 1 < len(devices) <= MAX_OWN:
        own, why = _own(job, settings, devices, environ)
        found = Chosen(Method.STREAMS, why)
    lines = [f"pipe {pipe}", f"log {pipe.parent / 'log'}"] if pipe is not None else []
    lines += own
    if settings.thread_percentage and (own or pipe is not None):
        lines.append(f"threads {settings.thread_percentage}")
    return found, lines


def _frameworks(settings: hookenv.HookSettings) -> str:
    return f"frameworks {settings.frameworks}"


def _ladder(
    settings: hookenv.HookSettings,
    held: Mapping[str, Any],
    devices: list[dict[str, Any]],
    environ: Mapping[str, str],
) -> list[str]:
    """What the other rungs need: the limit of the job's cgroup and who sets it, and which tasks
    are given their framework's own."""
    lines = [_frameworks(settings)]
    if held["available"] and _by_kernel(settings, devices, environ):
        lines.append(f"cgroup_mib {held['shards'] * held['shard_mib']}")
        lines.append(f"cgroup_uuids {','.join(str(one['uuid']) for one in devices)}")
        lines.append(f"program {environ['COLOC_PROGRAM']}")
        config = environ.get("COLOC_CONFIG", "")
        lines += [f"config {config}"] if config else []
    return lines


def unfenced(
    job: hookenv.HookJob,
    settings: hookenv.HookSettings,
    gpu: Mapping[str, Any],
    environ: Mapping[str, str],
) -> str:
    """Why neither MPS nor the kernel would hold this job's memory; "" where one would, as far as
    can be told before anything is set up."""
    devices = gpu.get("devices", [])
    if _by_kernel(settings, devices, environ):
        return ""
    if len(devices) != 1:
        return _several(devices)
    if str(devices[0]["uuid"]).startswith("MIG-"):
        return ""  # nobody else is in it
    rules = _rules(job, settings, devices[0])
    return _gpu(settings, str(devices[0]["uuid"]), environ).would_join(_run(job), rules).reason


def _by_kernel(
    settings: hookenv.HookSettings, devices: list[dict[str, Any]], environ: Mapping[str, str]
) -> bool:
    """Whether the kernel may hold the job: whole GPUs, cgroup v2, a driver that knows it."""
    if settings.cgroup == "off" or not environ.get("COLOC_PROGRAM", "").startswith("/"):
        return False
    whole = [one for one in devices if str(one["uuid"]).startswith("GPU-")]
    if not 0 < len(devices) == len(whole) <= MAX_LIMITED:
        return False
    return cgroup.unified() and fence.has_limits(_driver(settings))


def _several(devices: list[dict[str, Any]]) -> str:
    return "the job has several GPUs here" if devices else "the GPU is not known"


def _driver(settings: hookenv.HookSettings) -> str:
    if not settings.nvml:
        return ""
    try:
        with nvml.Nvml() as lib:
            return lib.driver()
    except GpuError:
        return ""


def _visible(gpu: Mapping[str, Any]) -> list[str]:
    """The line that names the run's GPUs or MIG devices where a GPU of the node is in MIG mode:
    there Slurm's numbers, which it puts into CUDA_VISIBLE_DEVICES, are not CUDA's."""
    if not gpu.get("mig") or not gpu.get("devices"):
        return []
    return [f"visible {','.join(str(one['uuid']) for one in gpu['devices'])}"]


def _join(
    job: hookenv.HookJob,
    settings: hookenv.HookSettings,
    devices: list[dict[str, Any]],
    environ: Mapping[str, str],
) -> tuple[Chosen, Any]:
    if len(devices) != 1:
        why = _several(devices) + (", and an MPS daemon serves one" if devices else "")
        return Chosen(Method.STREAMS, why), None
    rules = _rules(job, settings, devices[0])
    return _gpu(settings, str(devices[0]["uuid"]), environ).join(_run(job), rules)


def _own(
    job: hookenv.HookJob,
    settings: hookenv.HookSettings,
    devices: list[dict[str, Any]],
    environ: Mapping[str, str],
) -> tuple[list[str], str]:
    """MPS on each of the job's GPUs, for tasks that have one of them: the lines, and what the
    others are told. All or none: tasks of one training should not differ."""
    lines = []
    for device in devices:
        uuid, minor = str(device["uuid"]), device.get("minor")
        found, pipe = _gpu(settings, uuid, environ).join(_run(job), _rules(job, settings, device))
        if pipe is None or not isinstance(minor, int):
            leave(job, settings, environ, [])
            return [], f"{_several(devices)}, and on one of them {found.reason or 'no number'}"
        lines.append(f"task {minor} {uuid} {pipe.parent}")
    return lines, f"{_several(devices)}; a task with one of them is a client of its MPS"


def _rules(
    job: hookenv.HookJob, settings: hookenv.HookSettings, device: Mapping[str, Any]
) -> Rules:
    """What the site wants of this GPU."""
    minor = device.get("minor")  # an object with the reason where NVML does not tell it
    known = minor if isinstance(minor, int) else None
    method = method_on(settings.method, settings.rules, job.node, str(device["uuid"]), known)
    return Rules(method, settings.users)  # type: ignore[arg-type]


def leave(
    job: hookenv.HookJob,
    settings: hookenv.HookSettings,
    environ: Mapping[str, str],
    notes: list[str],
) -> None:
    """Give back what ``prepare`` took, for this run or an earlier one; a fault is a note. Clients
    that the job leaves behind are ended, for their memory is others' now."""

    def mine(pid: int) -> bool:
        found = procs.find(pid, {job.job_id: job.uid}.get)
        return found is not None and found.job_id == job.job_id

    faults = node.leave(settings.run_dir, settings.mps_control, environ, _run(job), mine)
    notes += [f"MPS: {fault}" for fault in faults]


def _gpu(settings: hookenv.HookSettings, uuid: str, environ: Mapping[str, str]) -> Gpu:
    return Gpu(settings.run_dir, uuid, settings.mps_control, environ)


def _run(job: hookenv.HookJob) -> MpsJob:
    return MpsJob(job.job_id, job.restart, job.uid, job.gid)
