# SPDX-License-Identifier: Apache-2.0
"""Stage finish, `coloc epilog`: report how a job ended and whether its log tells of a GPU OOM.

Finds the log, reads its end with the user's rights, judges it, and hands the report to colocd or,
when colocd is away, to the spool. Evidence is saved before a requeue can truncate the log. It
only reports: colocd decides. About 6 s at worst: 2 for the log, 1 for the driver, 2 for colocd.

May run twice for a job: the second report has the same key and replaces the first.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from slurm_coloc.adapters import hookenv, nvml, spool, userfile
from slurm_coloc.adapters.link.limited import limited
from slurm_coloc.core.gpu.peak import Peak, Use, peak_of
from slurm_coloc.core.gpu.sharing import Method
from slurm_coloc.core.gpu.telemetry.final_usage import peak_mib
from slurm_coloc.core.recover import faults, oom
from slurm_coloc.core.slurm import log_path
from slurm_coloc.core.time.announce import announced
from slurm_coloc.errors import ColocError
from slurm_coloc.flow.finish import final_usage
from slurm_coloc.flow.launch import memory_limit, sharing
from slurm_coloc.flow.launch.job_log import log_facts
from slurm_coloc.flow.node.deliver import deliver
from slurm_coloc.flow.node.jobs_here import FENCE, LINE, NO_MPS, read_starts, remove_state

UNTOLD = "log not judged: what earlier runs wrote cannot be told apart"
LOG_DEADLINE_S = 2.0
NVML_DEADLINE_S = 1.0
COLOCD_DEADLINE_S = 2.0


class Known(NamedTuple):
    """What the node knows of this very run.

    ``state`` is the Prolog's, {} without one; ``step`` the numbers and the name (see log_facts);
    ``starts`` for "stdout" and "stderr" (inode, bytes) as they were when the program started.
    """

    state: dict[str, Any]
    step: bytes | None
    starts: dict[str, tuple[int, int]]


def run(environ: Mapping[str, str], dry_run: bool = False) -> str:
    """Report the job's end; returns the log line. Raises ColocError or OSError."""
    began_s = time.monotonic()
    call = hookenv.read_call(environ)
    job, settings = call.job, call.settings
    slurm_uid = spool.uid_of(settings.slurm_user)
    notes: list[str] = []
    known = _load_known(call, notes)
    tails = _tails(call, known, notes) if job.batch else {}
    evidence = _evidence(tails, notes, failed=bool(job.exit_code))
    if UNTOLD in notes and job.exit_code:
        evidence = {"oom": False, "kind": faults.NOT_JUDGED, "line": UNTOLD}
    if not job.batch:
        notes.append("no batch job: no log")
    ended_s = round(time.time(), 3)
    accounted = _accounted(known.state, settings, notes)
    peak = _peak(known.state, accounted, ended_s)
    used = final_usage.used(settings.run_dir, known.state, accounted, ended_s, notes)
    own_mib = peak_mib(used) if used else None
    if used:
        used["fence"] = _fence(call, known.state)
    report = {
        "v": 1,
        "op": "report",
        "cluster": job.cluster,
        "job_id": job.job_id,
        "restart": job.restart,
        "node": job.node,
        "uid": job.uid,
        "exit_code": job.exit_code,
        "signal": job.signal,
        "gpu_uuids": _uuids(known.state, job),
        "ended_s": ended_s,
        "evidence": evidence,
        "checkpoint": _checkpoint(tails),
        "peak_mib": own_mib or (peak.peak_mib if peak else None),
        "alone": peak.alone if peak else None,
        "method": _method(known.state),
        "fence": known.state.get("fence"),
        "used": used,
        "notes": notes,
        "took_s": round(time.monotonic() - began_s, 4),
    }
    if dry_run:
        json.dump(report, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return _line(report, "nowhere (dry run)")
    try:
        where = deliver(report, settings, slurm_uid, COLOCD_DEADLINE_S)
    except (ColocError, OSError) as err:  # the GPU is left all the same, for the next job's sake
        where = f"lost ({err})"
    sharing.leave(call, notes)  # after the report: it may take 2 s
    # Last, so that an Epilog that was killed can run again.
    with contextlib.suppress(ColocError):  # a folder that cannot be used is in the notes already
        remove_state(settings.run_dir, job.job_id)
    return _line(report, where)


def _load_known(call: hookenv.HookCall, notes: list[str]) -> Known:
    """The Prolog's state of this very run and slurmstepd's files; a note where it is missing."""
    job, owners = call.job, {0, os.geteuid()}
    try:
        with spool.open_dir(call.settings.run_dir, None) as fd:
            raw = spool.read_file(fd, f"{job.job_id}.json", owners)
            step = spool.read_file(fd, f"{job.job_id}.step", owners, 1024)
            logs = spool.read_file(fd, f"{job.job_id}.logs", owners, LINE)
            held = spool.read_file(fd, f"{job.job_id}.{FENCE}", owners, 1024)
            not_in_mps = spool.read_file(fd, f"{job.job_id}.{NO_MPS}", owners)
        state = json.loads(raw) if raw is not None else None
    except (ColocError, OSError, ValueError, RecursionError) as err:
        notes.append(f"state unreadable: {str(err)[:100]}")
        return Known({}, None, {})
    if not isinstance(state, dict) or state.get("restart") != job.restart:
        notes.append("no state of this run: the Prolog did not write one")
        # The numbers and the name are those of every run, the logs' lengths are not.
        return Known({}, step, {})
    state["fence"], state["fence_mib"] = memory_limit.level_of(held), memory_limit.mib_of(held)
    if not_in_mps and _method(state) == Method.MPS:
        # What its daemon would have held it to says nothing of this run.
        state["sharing"]["method"] = Method.STREAMS.value
        why = not_in_mps.decode("ascii", "replace").splitlines()[0][:100]
        notes.append(f"a task ran without MPS: {why}")
    return Known(state, step, read_starts(logs or b""))


def _tails(call: hookenv.HookCall, known: Known, notes: list[str]) -> dict[str, userfile.Tail]:
    """The ends of the logs that can be judged, stderr first; one file for both is stdout."""
    job = call.job
    if job.restart > 0 and not known.state:
        # 22.05 may skip the Prolog of a job that it starts again at once.
        notes.append(UNTOLD)
        return {}
    patterns = {"stdout": job.stdout}
    if job.stderr is not None and job.stderr != job.stdout:
        patterns = {"stderr": job.stderr, "stdout": job.stdout}
    wants = _wants(job, known, patterns)
    owner = userfile.Owner(job.uid, job.gid, job.user)
    tails = userfile.read_tails(owner, wants, call.settings.log_tail_kib * 1024, LOG_DEADLINE_S)
    marked = known.state.get("log_marks", {}) is not None
    found: dict[str, userfile.Tail] = {}
    for name, tail in zip(patterns, tails, strict=True):
        if tail.reason is not None:
            notes.append(f"{name} not read: {tail.reason}")
        elif not marked and name not in known.starts:
            notes.append(f"{name} not judged: the Prolog could not look at it in time")
        else:
            found[name] = tail
    return found


def _evidence(
    tails: Mapping[str, userfile.Tail], notes: list[str], *, failed: bool
) -> dict[str, Any] | None:
    """What the logs tell of an out-of-memory or another fault of the GPU's; of a run that
    ``failed``, of an error that has to do with neither."""
    found: dict[str, Any] | None = None
    for name, tail in tails.items():
        evidence = oom.find_oom(tail.data)
        if evidence is not None and (found is None or (evidence.oom and not found["oom"])):
            found = _plain(evidence, name)
            if evidence.superseded_by:
                notes.append(f"out-of-memory was caught; ended in {evidence.superseded_by}")
        elif found is None and (fault := faults.find_fault(tail.data)):
            kind, line = fault
            found = {"oom": False, "kind": kind, "pattern": "fault", "line": line, "file": name}
        elif found is None and failed and (error := oom.ordinary_end(tail.data)):
            # Whatever its memory was: the GPU did not stop this program.
            line = f"it ended in {error}"
            found = {"oom": False, "kind": "error", "pattern": "error", "line": line, "file": name}
    return found


def _checkpoint(tails: Mapping[str, userfile.Tail]) -> dict[str, bool] | None:
    """What the log says of the run's checkpoints; None where it says nothing."""
    lines = [announced(tail.data) for tail in tails.values()]
    saved, goes_on = any(one.saved for one in lines), any(one.goes_on for one in lines)
    return {"saved": saved, "goes_on": goes_on} if saved or goes_on else None


def _accounted(
    state: dict[str, Any], settings: hookenv.HookSettings, notes: list[str]
) -> dict[str, list[Use]] | None:
    """The processes of the run's GPUs that the driver remembers, everybody's; None where it does
    not tell."""
    uuids = [str(one["uuid"]) for one in state.get("gpu", {}).get("devices", [])]
    if not uuids or not state.get("started_s") or not settings.nvml:
        return None

    def accounted() -> dict[str, list[Use]]:
        with nvml.Nvml() as lib:
            return {uuid: lib.accounted(uuid) for uuid in uuids}

    try:
        return limited(accounted, NVML_DEADLINE_S)
    except (ColocError, OSError) as err:  # TimeoutError is one
        notes.append(f"peak not known: {str(getattr(err, 'message', '') or err)[:200]}")
        return None


def _peak(
    state: dict[str, Any], accounted: dict[str, list[Use]] | None, ended_s: float
) -> Peak | None:
    """What the processes took that began on the run's GPUs since its Prolog: all of them, a
    neighbour's too. colocd knows whether there was one."""
    if accounted is None:
        return None
    return peak_of(accounted.values(), float(state["started_s"]), ended_s)


def _method(state: dict[str, Any]) -> str | None:
    method = state.get("sharing", {}).get("method")
    return method if method in set(Method) else None


def _fence(call: hookenv.HookCall, state: dict[str, Any]) -> dict[str, Any] | None:
    """The fence level of the run that was read back, and its limit; None for none."""
    if state.get("fence") is not None:
        return {"level": state["fence"], "limit_mib": state.get("fence_mib")}
    if _method(state) != Method.MPS:
        return None
    limit_mib = sharing.bound_mib(call, state.get("gpu", {}).get("devices", []))
    return {"level": "mps", "limit_mib": limit_mib}


def _wants(
    job: hookenv.HookJob, known: Known, patterns: Mapping[str, str | None]
) -> list[userfile.Want]:
    facts = log_facts(job, known.step)
    started_s = float(known.state.get("started_s", 0.0))
    marks = {
        path: userfile.Mark(size, digest)
        for path, (size, digest) in (known.state.get("log_marks") or {}).items()
    }
    return [
        userfile.Want(log_path.expand(pattern, facts), started_s, marks, known.starts.get(name))
        for name, pattern in patterns.items()
    ]


def _plain(evidence: oom.OomEvidence, file: str) -> dict[str, Any]:
    plain = {"oom": evidence.oom, "file": file, **evidence._asdict()}
    del plain["superseded_by"]  # a note
    return plain


def _uuids(state: dict[str, Any], job: hookenv.HookJob) -> list[str]:
    devices = state.get("gpu", {}).get("devices", [])
    return [str(device["uuid"]) for device in devices] or list(job.uuids)


def _line(report: dict[str, Any], where: str) -> str:
    evidence = report["evidence"]
    verdict = evidence["kind"] if evidence and evidence["oom"] else "none"
    return (
        f"jobid={report['job_id']} restart={report['restart']} node={report['node']}"
        f" exit={report['exit_code']}:{report['signal']} oom={verdict} report={where}"
        + "".join(f" note={note!r}" for note in report["notes"])
    )
