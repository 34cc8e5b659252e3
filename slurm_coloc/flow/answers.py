# SPDX-License-Identifier: Apache-2.0
"""What people ask: jobs, history, status. Everybody sees his own jobs, root and SlurmUser all."""

import json
from typing import Any

from slurm_coloc.adapters.store import Row, Store
from slurm_coloc.core.cluster import ClusterShape
from slurm_coloc.errors import UsageFault

Answer = dict[str, Any]

MOST = 1000


def _limit(message: dict[str, Any]) -> int:
    limit = message.get("limit", 50)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST:
        raise UsageFault(f"limit: a number from 1 to {MOST}", "bad-request")
    return limit


def _told(row: Row) -> Row:
    """A row as it is shown: JSON columns opened."""
    opened = dict(row)
    for name in ("gpu_uuids", "evidence", "features", "request"):
        if isinstance(opened.get(name), str):
            opened[name] = json.loads(opened[name])
    return opened


def jobs(store: Store, uid: int | None, message: dict[str, Any]) -> Answer:
    """Runs that have not ended, of ``uid`` or (None) of everybody."""
    rows = store.recent_runs(uid, _limit(message), only_open=True)
    return {"jobs": [_told(row) for row in rows]}


def history(store: Store, uid: int | None, message: dict[str, Any]) -> Answer:
    """Newest runs, ended or not; and what was decided in observe mode, which has no job."""
    limit = _limit(message)
    return {
        "runs": [_told(row) for row in store.recent_runs(uid, limit)],
        "observed": [_told(row) for row in store.observed(uid, limit)],
    }


def explain(store: Store, uid: int | None, message: dict[str, Any]) -> Answer:
    """The decision and the story of one job id; raises UsageFault where there is none to see."""
    job_id = message.get("job_id")
    if not isinstance(job_id, int) or isinstance(job_id, bool):
        raise UsageFault("job_id: a number", "bad-request")
    runs = [row for row in store.runs_of_job(job_id) if uid is None or row["uid"] == uid]
    if not runs:
        raise UsageFault(f"job {job_id}: not a --coloc job that you may see", "unknown-job")
    # Ids start again after `slurmctld -c`: the newest decision is the one meant.
    decision = store.decision(runs[-1]["decision"]) or {}
    mine = [_told(row) for row in runs if row["decision"] == decision.get("id")]
    story = store.story(str(decision.get("id")), job_id)
    return {"job_id": job_id, "decision": _told(decision), "runs": mine, "story": story}


def status(store: Store, shape: ClusterShape | None, switched_off: bool, mode: str) -> Answer:
    """How colocd is."""
    gpus = sum(node.gpus for node in shape.nodes) if shape else 0
    return {
        "mode": "off" if switched_off else mode,
        "cluster": shape.name if shape else None,
        "slurm": ".".join(map(str, shape.release)) if shape else None,
        "gpu_nodes": len(shape.nodes) if shape else 0,
        "gpus": gpus,
        "shards": sum(node.shards for node in shape.nodes) if shape else 0,
        **store.counts(),
    }
