# SPDX-License-Identifier: Apache-2.0
"""coloc's own history, as `coloc history --json` prints it: measured peaks of GPU memory."""

import json
from dataclasses import replace
from pathlib import Path

from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.past import Past, counted


def with_peaks(past: Past, path: Path) -> Past:
    """The runs, with the highest peak that the history has of each job id where accounting has
    none. Raises UsageFault naming file and run."""
    peaks = _peaks(path)
    jobs = [
        replace(job, peak_mib=peaks[job.id]) if job.peak_mib is None and job.id in peaks else job
        for job in past.jobs
    ]
    known = sum(new is not old for new, old in zip(jobs, past.jobs, strict=True))
    return Past(jobs, [*past.notes, f"peaks of {counted(known, 'run')} from coloc's history"])


def _peaks(path: Path) -> dict[str, int]:
    try:
        runs = json.loads(path.read_text(encoding="utf-8-sig"))["runs"]
    except OSError as err:
        raise UsageFault(f"{path}: cannot be read: {err.strerror or err}") from err
    except (ValueError, TypeError, LookupError, RecursionError):
        raise UsageFault(f"{path}: is not what `coloc history --json` prints") from None
    found: dict[str, int] = {}
    for number, run in enumerate(runs if isinstance(runs, list) else [], 1):
        try:
            job_id, peak_mib = str(run["job_id"]), int(run["peak_mib"] or 0)
        except (TypeError, ValueError, LookupError):
            raise UsageFault(f"{path}, run {number}: no job_id or peak_mib") from None
        if peak_mib > 0:
            found[job_id] = max(peak_mib, found.get(job_id, 0))
    return found
