# SPDX-License-Identifier: Apache-2.0
"""What people ask: jobs, history, status. Root and SlurmUser see all, everybody his own; of others'
what squeue shows too, unless PrivateData has ``jobs``, and never what their logs or models hold."""

import json
from typing import Any

from slurm_coloc.adapters.store import Row, Store
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.errors import UsageFault

Answer = dict[str, Any]

MOST = 1000
HOUR_S = 3600.0


def _limit(message: dict[str, Any]) -> int:
    limit = message.get("limit", 50)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MOST:
        raise UsageFault(f"limit: a number from 1 to {MOST}", "bad-request")
    return limit


def _told(row: Row) -> Row:
    """A row as it is shown: JSON columns opened."""
    opened = dict(row)
    for name in ("gpu_uuids", "evidence", "features", "request", "learning", "used"):
        if isinstance(opened.get(name), str):
            opened[name] = json.loads(opened[name])
    return opened


def is_private(shape: ClusterShape | None) -> bool:
    """Whether users may not see each other's jobs (PrivateData); so too while that is unknown."""
    return shape is None or "jobs" in shape.private_data


def _hidden(row: Row) -> Row:
    """Another user's run or decision: without what his log, his model or his files told."""
    kept = dict(row)
    told = ("evidence", "features", "fingerprint", "options", "request", "detail", "learning")
    for name in (*told, "used", "blame", "retry", "retry_cause"):
        if name in kept:
            kept[name] = {} if name in ("features", "request") else None
    return kept


def _of_user(message: dict[str, Any]) -> int | None:
    user = message.get("user")
    if user is not None and (not isinstance(user, int) or isinstance(user, bool)):
        raise UsageFault("user: a uid", "bad-request")
    return user


def jobs(store: Store, uid: int | None, message: dict[str, Any], private: bool) -> Answer:
    """Runs that have not ended, as ``uid`` may see them (None: all): his own, those of ``user``, or
    with ``all`` everybody's and those that ended too. ``private`` in the answer: others are hidden
    by PrivateData."""
    everybody, user = message.get("all") is True, _of_user(message)
    others = user != uid if user is not None else everybody
    whom = user if user is not None else None if everybody or uid is None else uid
    if uid is not None and private and others:
        whom = uid
    rows = store.asked.recent_runs(whom, _limit(message), only_open=not everybody)
    told = [_told(row) if uid in (None, row["uid"]) else _hidden(_told(row)) for row in rows]
    hidden = uid is not None and private and others
    if hidden and user is not None:
        told = []
    return {"jobs": told, **({"private": True} if hidden else {})}


def history(store: Store, uid: int | None, message: dict[str, Any]) -> Answer:
    """Newest runs, ended or not; and what was decided in observe mode, which has no job."""
    limit = _limit(message)
    return {
        "runs": [_told(row) for row in store.asked.recent_runs(uid, limit)],
        "observed": [_told(row) for row in store.asked.observed(uid, limit)],
    }


def explain(store: Store, uid: int | None, message: dict[str, Any], private: bool) -> Answer:
    """The decision and the story of one job id; raises UsageFault where there is none to see."""
    job_id = message.get("job_id")
    if not isinstance(job_id, int) or isinstance(job_id, bool):
        raise UsageFault("job_id: a number", "bad-request")
    mine = [row for row in store.runs_of_job(job_id) if uid in (None, row["uid"]) or not private]
    if not mine:
        raise UsageFault(f"job {job_id}: not a --coloc job that you may see", "unknown-job")
    # Ids start again after `slurmctld -c`: the newest decision is the one meant.
    decision = _told(store.decision(mine[-1]["decision"]) or {})
    tries = [row for row in mine if row["decision"] == decision.get("id")]
    runs = [{**_told(row), "retry": _retry(store, row)} for row in tries]
    story = store.story(str(decision.get("id")), job_id)
    if uid not in (None, runs[-1]["uid"]):
        # What follows the bracket is a line of the owner's log.
        story = [{**line, "text": line["text"].split(" (")[0]} for line in story]
        decision, runs = _hidden(decision), [_hidden(run) for run in runs]
    return {"job_id": job_id, "decision": decision, "runs": runs, "story": story}


def _retry(store: Store, run: Row) -> Row | None:
    """What came after a run: whose doing its end was, and what the next try asked for."""
    work = store.works.of(run["decision"], run["job_id"], run["restart"])
    return work and {name: work[name] for name in ("cause", "way", "tres", "state", "front")}


def status(
    store: Store,
    shape: ClusterShape | None,
    *,
    seen_s: float | None,
    mode: str,
    role: str,
    now_s: float,
    links: list[dict[str, Any]],
    trusted: bool,
) -> Answer:
    """How colocd is. ``links``: what each node's agent said last; root and SlurmUser see them."""
    gpus = sum(node.gpus for node in shape.nodes) if shape else 0
    return {
        "mode": mode,
        "role": role,
        "seen_s": seen_s,
        "cluster": shape.name if shape else None,
        "slurm": ".".join(map(str, shape.release)) if shape else None,
        "gpu_nodes": len(shape.nodes) if shape else 0,
        "gpus": gpus,
        "shards": sum(node.shards for node in shape.nodes) if shape else 0,
        "linked_nodes": sum(link["linked"] for link in links),
        **({"links": links, "unfit": store.putbacks.since(now_s - HOUR_S)} if trusted else {}),
        **store.asked.counts(),
    }
