# SPDX-License-Identifier: Apache-2.0
"""The tries of a job: what each had, how it ended, and what came next."""

import textwrap
from collections.abc import Iterator
from typing import Any

from slurm_coloc.cli import render
from slurm_coloc.core.recover.next_try import Verdict, Way
from slurm_coloc.core.recover.outcome import WHOSE, Blame, Outcome

Row = dict[str, Any]
SHOWN = 160  # characters of the log's line: sizes stand at its begin; --json has all of it

ENDED = {
    Outcome.COMPLETED: "completed",
    Outcome.OOM_GPU: "out of GPU memory",
    Outcome.OVERRUN: "held too much",
    Outcome.OOM_HOST: "out of host memory",
    Outcome.FAILED: "failed",
    Outcome.CANCELLED: "cancelled",
    Outcome.IDLE: "cancelled, idle",
    Outcome.TIMEOUT: "time limit",
    Outcome.PREEMPTED: "preempted",
    Outcome.NODE_FAIL: "node failed",
    Outcome.REQUEUED: "put back",
    Outcome.PUT_BACK: "put back, GPU unfit",
    Outcome.SLOT: "end of its slot",
    Outcome.GONE: "end not seen",
}
NEXT = {
    Way.MORE: "comes back with more memory",
    Way.WHOLE: "comes back on a whole GPU",
    Way.SAME: "comes back with the same request",
}
#: for the table of jobs, where a run came by a recovery
CAME_BY = {Way.MORE: "more memory", Way.WHOLE: "whole GPU", Way.SAME: "same again"}
STAYS = {
    Verdict.DOES_NOT_FIT: "not requeued: this model does not fit this card",
    Verdict.SWITCHED_OFF: "not requeued: recovery is switched off",
    Verdict.NO_REQUEUE: "not requeued: its owner wants none (--no-requeue), or it has no script",
    Verdict.JOB_CAP: "not requeued: its recoveries are used up",
    Verdict.USER_CAP: "not requeued: its owner's recoveries of the day are used up",
    Verdict.CLUSTER_CAP: "not requeued: the cluster's recoveries of the day are used up",
    Verdict.VICTIM_CAP: "not requeued: others ended it too often",
}


def tries(decision: Row, runs: list[Row]) -> Iterator[tuple[str, str]]:
    """A line for each ended run."""
    for run in runs:
        if not run["outcome"]:
            continue
        parts = [render.share({**decision, **run}), ended(run)]
        if run["peak_mib"] is not None:
            parts[1] += f", peak {run['peak_mib']} MiB"
        if evidence := run["evidence"]:
            parts.append(textwrap.shorten(str(evidence.get("line")), SHOWN, placeholder="..."))
        if run["blame"] in set(Blame) - {Blame.UNKNOWN}:
            parts.append(WHOSE[Blame(run["blame"])])
        if culprit := run.get("culprit"):
            held, promised = render.gib(culprit["held_mib"]), render.gib(culprit["promised_mib"])
            parts[-1] += f", job {culprit['job_id']} with {held} GiB of {promised} promised"
        parts += filter(None, [_next(run)])
        yield f"Try {run['restart'] + 1}", "; ".join(parts)


def ended(run: Row) -> str:
    """How a run ended; a word of a newer colocd as it stands."""
    return str(ENDED.get(run["outcome"], run["outcome"]))


def _next(run: Row) -> str:
    if retry := run.get("retry"):
        text = NEXT[Way(retry["way"])] + f" ({retry['tres']})"
        return text if retry["state"] != "failed" else f"{text}: given up, Slurm refused"
    try:
        return STAYS.get(Verdict(run["verdict"]), "")
    except ValueError:
        return ""


def came_by(run: Row) -> str | None:
    """How a run of the table of jobs came about, where it was by a recovery."""
    if not run.get("retry_way"):
        return None
    whose = f" ({run['retry_cause']})" if run["retry_cause"] not in (None, Blame.SELF) else ""
    if run.get("retry_culprit"):
        whose = f" ({run['retry_cause']} {run['retry_culprit']})"
    return CAME_BY[Way(run["retry_way"])] + whose


def overran(run: Row) -> str | None:
    """That a run held more than its share and ended others by it."""
    count = run.get("victims")
    return f"held more than its share, ended {count}" if count else None
