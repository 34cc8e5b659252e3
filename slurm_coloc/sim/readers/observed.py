# SPDX-License-Identifier: Apache-2.0
"""Jobs that colocd's agents measured while the site only observed, as runs to be played again."""

from collections.abc import Iterable, Mapping
from typing import Any

from slurm_coloc.sim.past import Past, PastJob, notes


def past_of(rows: Iterable[Mapping[str, Any]]) -> Past:
    """The runs. A row is a job on one node (core/records/observed); a job on several has one for
    each. A job that never used its GPU has none."""
    by_job: dict[int, list[Mapping[str, Any]]] = {}
    strangers = 0
    for row in rows:
        if row["uid"] is None or row["uid"] < 0:
            strangers += 1
        by_job.setdefault(row["job_id"], []).append(row)
    made = [job for found in by_job.values() for job in _jobs(found)]
    said = notes(
        (strangers, "row", "of jobs that Slurm no longer knew: their own users, no waiting time"),
    )
    return Past(made, [*said, "jobs that never used their GPU are not among them"])


def _jobs(rows: list[Mapping[str, Any]]) -> Iterable[PastJob]:
    """One run, or several where an id came again: rows that do not overlap in time and are not of
    one start. A node has several of one start where its agent was restarted, or where the job held
    no GPU memory for minutes."""
    runs: list[list[Mapping[str, Any]]] = []
    for row in sorted(rows, key=lambda one: float(one["since_s"])):
        last = runs[-1] if runs else []
        again = bool(last) and row["start_s"] is not None and _start(row) == _start(last[0])
        if last and (again or row["since_s"] <= max(one["until_s"] for one in last)):
            last.append(row)
        else:
            runs.append([row])
    for number, run in enumerate(runs):
        first = run[0]
        begin = min(one["start_s"] or one["since_s"] for one in run)
        begin = min(begin, *(one["since_s"] for one in run))
        known = [one["smact"] for one in run if one["smact"] is not None]
        user = first["uid"] if first["uid"] is not None and first["uid"] >= 0 else ""
        most: dict[str, int] = {}
        for one in run:
            most[one["node"]] = max(most.get(one["node"], 0), one["gpus"])
        name = str(first["job_id"]) + (f".{number}" if number else "")
        yield PastJob(
            id=name,
            submit_s=min(first["submit_s"] or begin, begin),
            start_s=begin,
            run_s=max(1.0, max(one["until_s"] for one in run) - begin),
            gpus=sum(most.values()),
            user=str(user) if user != "" else f"job {name}",
            account=first["account"] or "",
            kind=first["kind"],
            peak_mib=max(one["peak_mib"] for one in run) or None,
            smact=sum(known) / len(known) if known else None,
        )


def _start(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return row["submit_s"], row["start_s"]
