# SPDX-License-Identifier: Apache-2.0
"""What Slurm, the jobs' own diaries and colocd say of each job at the end."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_coloc.lab.lab import Lab
from tests.promise.judge import EndedRun, Job
from tests.promise.plan import Planned

#: the script of every job: it writes down when it began and ended, and its training's last word
SCRIPT = """#!/bin/bash
#SBATCH --mem=60
book={folder}/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}
echo "begin $EPOCHREALTIME" >"$book"
leave() {{ echo "end $EPOCHREALTIME" >>"$book"; exit "$1"; }}
trap 'kill $train 2>/dev/null; wait $train; leave 143' TERM
{command} &
train=$!
wait $train
code=$?
[ $code -ne 0 ] || echo "done $EPOCHREALTIME" >>"$book"
leave $code
"""
_CULPRIT = re.compile(r"\bjob (\d+) held\b")


def script(one: Planned, train: Path, folder: Path) -> str:
    """The batch script of a planned job; its diaries are in ``folder``."""
    return SCRIPT.format(folder=folder, command=one.command(train))


def stays(folder: Path, job: int, over_s: float) -> tuple[list[tuple[float, float]], int]:
    """Begin and end of each run by the job's diaries, and how often it completed. A run that was
    killed has no end: it lasted no longer than until the next began, or ``over_s``."""
    found: list[tuple[float, float | None]] = []
    done = 0
    for book in sorted(folder.glob(f"{job}.*"), key=lambda path: int(path.suffix[1:])):
        told = dict(line.split() for line in book.read_text().splitlines() if " " in line)
        done += "done" in told
        if "begin" in told:
            end = told.get("end")
            found.append((float(told["begin"]), float(end) if end else None))
    whole = [
        (begin, end if end is not None else min([b for b, _ in found if b > begin] or [over_s]))
        for begin, end in found
    ]
    return whole, done


def explained(lab: Lab, job: int) -> Mapping[str, Any]:
    """`coloc explain --json` of a job as root; {} of a job that is not of --coloc."""
    done = lab.run(["coloc", "explain", str(job), "--json"], check=False)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "runs" in found else {}


def of_job(lab: Lab, one: Planned, shown: Mapping[str, str], diaries: Path, over_s: float) -> Job:
    """All that is known of a job; ``shown``: by scontrol."""
    number = int(shown["JobId"])
    told = explained(lab, number)
    events = [(float(event["at_s"]), str(event["kind"])) for event in told.get("story", ())]
    causes = [event["text"] for event in told.get("story", ()) if event["kind"] == "blame"]
    found, done = stays(diaries, number, over_s)
    return Job(
        job=number,
        user=shown["UserId"].split("(")[0],
        kind=one.kind,
        coloc=one.coloc,
        truth_mib=one.truth_mib,
        state=shown["JobState"],
        stays=found,
        done=done,
        runs=[_run(run, causes) for run in told.get("runs", ()) if run.get("end_s")],
        events=[*events, *_of_uses(told)],
    )


def _of_uses(told: Mapping[str, Any]) -> list[tuple[float, str]]:
    """The events of the agents' records."""
    return [
        (float(event["at_s"]), str(event["kind"]))
        for run in told.get("runs", ())
        for use in run.get("used") or ()
        for event in use.get("events", ())
    ]


def _run(run: Mapping[str, Any], causes: list[str]) -> EndedRun:
    """``causes``: what colocd told of each out-of-memory of the job."""
    named = [int(match[1]) for text in causes if (match := _CULPRIT.search(text))]
    return EndedRun(
        restart=run["restart"],
        start_s=run.get("start_s") or 0.0,
        end_s=run["end_s"],
        outcome=run.get("outcome") or "",
        blame=run.get("blame") or "",
        culprit=named[0] if run.get("blame") == "neighbour" and len(named) == 1 else None,
        share_mib=run.get("share_mib") or 0,
        method=run.get("method") or "",
    )
