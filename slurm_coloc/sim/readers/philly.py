# SPDX-License-Identifier: Apache-2.0
"""Microsoft's public Philly trace: `cluster_job_log`, a JSON list of jobs.

Each has status, vc, jobid, user, submitted_time and attempts; an attempt has start_time, end_time
and detail, a list of servers with the GPUs on each (philly-traces' own description; Jeon et al.,
ATC 2019). Times read ``2017-10-07 01:11:39``; "None" and null are times that were not logged. It
tells neither GPU memory nor time limits.

An attempt used GPUs like any job, so each is a run of its own; what follows a failed one was
submitted when that one ended.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.past import Past, PastJob, notes

FORMAT = "%Y-%m-%d %H:%M:%S"


class _Log:
    """Reads one file and counts what it leaves out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.never = self.unlogged = self.again = 0

    def jobs(self) -> Iterator[PastJob]:
        for number, job in enumerate(_load(self.path), 1):
            where = f"{self.path}, job {number}"
            if not isinstance(job, dict):
                raise UsageFault(f"{where}: is not an object")
            where += f" ({job.get('jobid', 'no jobid')})"
            yield from self._runs(job, where)

    def _runs(self, job: Mapping[str, Any], where: str) -> Iterator[PastJob]:
        submit_s = _time(job, "submitted_time", where)
        attempts = job.get("attempts")
        if submit_s is None or not isinstance(attempts, list):
            raise UsageFault(f"{where}: submitted_time and attempts are needed")
        self.never += not attempts
        for index, attempt in enumerate(attempts):
            place = f"{where}, attempt {index + 1}"
            if not isinstance(attempt, dict):
                raise UsageFault(f"{place}: is not an object")
            start_s = _time(attempt, "start_time", place)
            end_s = _time(attempt, "end_time", place)
            gpus = _gpus(attempt, place)
            if start_s is None or end_s is None or not gpus:
                self.unlogged += 1
                continue
            if end_s < start_s:
                raise UsageFault(f"{place}: end_time is before start_time")
            self.again += index > 0
            yield PastJob(
                id=f"{job.get('jobid', '')}/{index + 1}",
                submit_s=min(submit_s, start_s),
                start_s=start_s,
                run_s=end_s - start_s,
                gpus=gpus,
                user=str(job.get("user") or ""),
                account=str(job.get("vc") or ""),
                group=str(job.get("jobid") or "") if len(attempts) > 1 else "",
            )
            submit_s = end_s


def read_philly(path: Path) -> Past:
    """The attempts that were logged. Raises UsageFault naming file, job and field."""
    log = _Log(path)
    jobs = list(log.jobs())
    return Past(
        jobs,
        notes(
            (log.again, "later attempt", "counted as jobs of their own"),
            (log.never, "job", "that never started left out"),
            (log.unlogged, "attempt", "without a logged start, end or GPU left out"),
        ),
    )


def _load(path: Path) -> list[Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as err:
        raise UsageFault(f"{path}: cannot be read: {err.strerror or err}") from err
    except (ValueError, RecursionError) as err:
        raise UsageFault(f"{path}: is not JSON: {err}") from err
    if not isinstance(found, list):
        raise UsageFault(f"{path}: is not a list of jobs (cluster_job_log)")
    return found


def _time(item: Mapping[str, Any], name: str, where: str) -> float | None:
    text = item.get(name)
    if text in (None, "", "None"):
        return None
    try:
        found = datetime.strptime(str(text), FORMAT)
    except ValueError:
        raise UsageFault(f"{where}, {name}: {str(text)[:60]!r} is not a time") from None
    return (found - datetime(1970, 1, 1)).total_seconds()


def _gpus(attempt: Mapping[str, Any], where: str) -> int:
    detail = attempt.get("detail")
    if detail is None:
        return 0
    try:
        return sum(len(server["gpus"]) for server in detail)
    except (TypeError, KeyError):
        raise UsageFault(f"{where}, detail: is not a list of servers with their gpus") from None
