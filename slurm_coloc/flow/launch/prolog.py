# SPDX-License-Identifier: Apache-2.0
"""Stage launch, `coloc prolog`: note on the node what a job got before it starts.

Writes <run_dir>/<job id>.json: the GPUs by UUID, their real free memory and processes at this
moment, what colocd has reserved there, and how long its logs already are, so that the Epilog does
not take the out-of-memory of an earlier run, or of another job with the same log, for this one's.
Where NVML is missing, or colocd cannot be reached, the state says so and the job starts.

slurmstepd opens the log, and perhaps empties it, after the Prolog: these lengths are used where the
SPANK plugin did not write down the length that slurmstepd found.

What a shared GPU needs before the job starts (an MPS daemon) is set up between the first state and
the last; see sharing.

May run twice for a job; the later state replaces the earlier.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_coloc.adapters import hookenv, nvml, procs, spool, userfile
from slurm_coloc.adapters.hookenv import HookCall, HookJob
from slurm_coloc.adapters.link.limited import limited
from slurm_coloc.core.slurm import log_path
from slurm_coloc.errors import ColocError, DaemonUnreachable, GpuError
from slurm_coloc.flow.client.connect import reach
from slurm_coloc.flow.launch import sharing
from slurm_coloc.flow.launch.devices import gpus_of_job
from slurm_coloc.flow.launch.job_log import log_facts
from slurm_coloc.flow.node.deliver import ways_of
from slurm_coloc.flow.node.jobs_here import (
    FENCE,
    FILE_MODE,
    FOLDER_MODE,
    SHARE,
    Present,
    close_to_others,
)

MARKS_DEADLINE_S = 1.0
# All that colocd may cost the start of a job. It asks slurmctld, which may be busy, and a job that
# starts without an answer starts without its fence.
ASK_S = 2.0
# GPUs that are not fit are checked again after so many seconds: a process that was killed gives its
# memory back a little later.
PAUSES_S = (0.0, 0.5, 1.0)
PUT_BACK_S, SETTLE_S = 4.0, 1.0  # for slurmctld to requeue the job, and to tell slurmd
MOST = 64  # processes of one GPU in the request; MPS takes 48 clients
GPU_FACTS = ("uuid", "minor", "total_mib", "free_mib")


def run(environ: Mapping[str, str], dry_run: bool = False) -> str:
    """Write the job's state; returns the log line. Raises ColocError or OSError."""
    began_s = time.monotonic()
    call = hookenv.read_call(environ)
    job, settings = call.job, call.settings
    state: dict[str, Any] = {
        "schema": 1,
        "cluster": job.cluster,
        "job_id": job.job_id,
        "restart": job.restart,
        "node": job.node,
        "uid": job.uid,
        "started_s": round(time.time(), 3),
        "log_marks": _log_marks(job),
        "gpu": {"available": False, "reason": "NVML has not answered yet"},
        "reservation": {"available": False, "reason": "colocd has not answered yet"},
        "sharing": {"method": "unknown", "reason": "the Prolog has not set it up yet"},
    }
    if dry_run:
        state["gpu"] = gpus_now(call)
        json.dump(state, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return _line(job, state)
    with spool.open_dir(settings.run_dir, FOLDER_MODE) as fd:
        close_to_others(settings.run_dir)
        # Left by an Epilog that was killed: slurmstepd writes these files after the Prolog.
        for suffix in ("step", "logs", FENCE, SHARE):
            spool.remove_file(fd, f"{job.job_id}.{suffix}")
        # A first state before the driver is asked: a driver that hangs costs only the figures. And
        # already now: if this Prolog ends, however, the job's output says that it is not fenced.
        _write(fd, state)
        _write_share(fd, job, sharing.meanwhile(settings, state))
        why = _fit(call, state)
        _write(fd, state)
        if why:
            # slurmctld has the requeue; slurmd must have heard of it before this Prolog ends.
            time.sleep(SETTLE_S)
            return f"{_line(job, state)} put-back={why!r}"
        _write_share(fd, job, sharing.meanwhile(settings, state))
        state["sharing"], text = sharing.prepare(call, state)
        _write_share(fd, job, text)
        state["took_s"] = round(time.monotonic() - began_s, 4)
        _write(fd, state)
    return _line(job, state)


def _write_share(dir_fd: int, job: HookJob, text: str) -> None:
    name = f"{job.job_id}.{SHARE}"
    if text:
        spool.write_file(dir_fd, name, text.encode(), FILE_MODE)
    else:
        spool.remove_file(dir_fd, name)


def _fit(call: HookCall, state: dict[str, Any]) -> str:
    """Ask colocd whether the GPUs, as they are now, are fit for the job; why the job was put back,
    "" where it may start. Without colocd it starts."""
    for pause_s in PAUSES_S:
        time.sleep(pause_s)
        last = pause_s == PAUSES_S[-1]
        state["gpu"] = gpus_now(call)
        unfenced = sharing.unfenced(call, state["gpu"])
        state["reservation"], unfit = request_reservation(call, state["gpu"], last, unfenced)
        if not unfit:
            return ""
    return str(unfit.get("why") or "not fit") if unfit.get("back") is True else ""


def request_reservation(
    call: HookCall, gpu: dict[str, Any], last: bool, unfenced: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What colocd has reserved for this run, or "available": false with a reason; and what it says
    of GPUs that are not fit for it, {} where they are. ``unfenced``: why nothing would hold the
    job's memory. Never raises.

    Nothing here may take longer than ASK_S, since the job waits for its Prolog; but for the
    ``last`` request about GPUs that are not fit: colocd puts the job back before it answers.
    """
    job = call.job
    request = {
        "v": 1,
        "op": "launch",
        "job_id": job.job_id,
        "restart": job.restart,
        "node": job.node,
        "gpus": [_facts(one, call.settings.run_dir) for one in gpu.get("devices", [])],
        "last": last,
        "unfenced": unfenced[:200],
    }
    deadline_s = PUT_BACK_S if last else ASK_S
    try:
        answer = limited(lambda: _request(call, request, deadline_s), deadline_s)
    except (ColocError, OSError) as err:  # TimeoutError is one
        return _unavailable(getattr(err, "message", None) or f"colocd: {err}"), {}
    unfit = answer.get("unfit")
    found = answer.get("reservation")
    if not isinstance(found, dict):
        return _unavailable("colocd has decided nothing for this job"), {}
    where = {"from": answer["from"]}
    return {"available": True, **found, **where}, unfit if isinstance(unfit, dict) else {}


def _facts(device: Mapping[str, Any], run_dir: Path) -> dict[str, Any]:
    """A GPU for colocd. A figure that NVML did not give is an object with the reason: left out."""
    facts = {name: device[name] for name in GPU_FACTS if not isinstance(device[name], dict)}
    found = device["processes"]
    return facts | {"holders": _processes(found, run_dir) if isinstance(found, list) else []}


def _processes(processes: Sequence[Mapping[str, Any]], run_dir: Path) -> list[dict[str, Any]]:
    """NVML's ``processes`` of a GPU (pid, used_mib) with job, user and name
    (core/recover/fitness.GpuProcess). Left out: processes that have ended, and programs of MPS,
    whose memory is their clients'."""
    present = Present(run_dir)
    present.refresh()
    found = []
    for each in processes[:MOST]:
        one = procs.find(int(each["pid"]), present.uids.get)
        if one is None or procs.is_helper(one):
            continue
        process = {"pid": one.pid, "uid": one.uid, "name": one.name[:32]}
        if one.job_id is not None:
            process["job_id"] = one.job_id
        if isinstance(each["used_mib"], int):
            process["used_mib"] = each["used_mib"]
        found.append(process)
    return found


def _request(call: HookCall, request: dict[str, Any], deadline_s: float) -> dict[str, Any]:
    job, settings = call.job, call.settings
    ways = ways_of(settings, job.cluster, job.node, spool.uid_of(settings.slurm_user))
    if not ways.any:
        raise DaemonUnreachable("no colocd on this host and no network.controllers")
    wire, answer = reach(ways, json.dumps(request).encode(), deadline_s)
    wire.close()
    if answer.get("ok") is not True:
        raise DaemonUnreachable(f"colocd refused: {str(answer.get('error'))[:200]}")
    return {**answer, "from": wire.where}


def gpus_now(call: HookCall) -> dict[str, Any]:
    """The job's GPUs or MIG devices as NVML shows them now, or "available": false with a reason;
    "renumbered": Slurm's numbers on this node are not CUDA's."""
    if not call.job.numbers and not call.job.uuids:
        return _unavailable("the job has no GPU on this node")
    if not call.settings.nvml:
        return _unavailable("nvml = false in the configuration")
    try:
        with nvml.Nvml() as lib:
            gpus, other, sizes = gpus_of_job(call.job, call.environ, lib, call.settings.run_dir)
    except GpuError as err:
        return _unavailable(err.message)
    devices = [
        {**_plain(gpu), **({"slice_mib": mib} if mib else {})}
        for gpu, mib in zip(gpus, sizes, strict=True)
    ]
    return {"available": True, "devices": devices, "renumbered": other}


def _unavailable(reason: str) -> dict[str, Any]:
    return {"available": False, "reason": reason}


def _plain(value: Any) -> Any:
    """Records as JSON; a value that NVML did not give is null with its reason beside it."""
    if isinstance(value, nvml.Missing):
        return {"available": False, "reason": value.reason}
    if isinstance(value, nvml.Gpu | nvml.Process):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _log_marks(job: HookJob) -> dict[str, list[Any]] | None:
    """Length and digest of the logs that exist already, read with the user's rights.

    None where a file server did not answer in time: then older text cannot be told apart.
    """
    if not job.batch:
        return {}
    facts = log_facts(job)
    patterns = dict.fromkeys((job.stdout, job.stderr))
    wants = [userfile.Want(log_path.expand(pattern, facts)) for pattern in patterns]
    owner = userfile.Owner(job.uid, job.gid, job.user)
    tails = userfile.read_tails(owner, wants, userfile.MARK_BYTES, MARKS_DEADLINE_S)
    if any(tail.reason == userfile.NO_ANSWER for tail in tails):
        return None
    return {
        tail.path: [tail.size, userfile.digest(tail.data)]
        for tail in tails
        if tail.path and tail.reason is None
    }


def _write(dir_fd: int, state: dict[str, Any]) -> None:
    data = json.dumps(state, indent=1).encode("ascii") + b"\n"
    spool.write_file(dir_fd, f"{state['job_id']}.json", data, FILE_MODE)


def _line(job: HookJob, state: dict[str, Any]) -> str:
    words = [f"jobid={job.job_id} restart={job.restart} node={job.node}"]
    gpu, held, shared = state["gpu"], state["reservation"], state["sharing"]
    if gpu["available"]:
        words += [f"gpu={one['uuid']} free_mib={one['free_mib']}" for one in gpu["devices"]]
    else:
        words.append(f"gpu=unavailable reason={gpu['reason']!r}")
    if held["available"]:
        words.append(f"decision={held['decision']} shards={held['shards']} from={held['from']!r}")
    else:
        words.append(f"reservation=unknown why={held['reason']!r}")
    words.append(f"sharing={shared['method']}")
    if shared["reason"]:
        words.append(f"because={shared['reason']!r}")
    if lacks := shared.get("lacks"):
        words.append(f"mps_lacks={'; '.join(lacks)!r}")
    return " ".join(words)
