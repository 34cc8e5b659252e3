# SPDX-License-Identifier: Apache-2.0
"""In colocd: what runs were promised whose Prolog got no answer in its time.

Such a run has begun, without a fence where only the Prolog could set one; but from here on its node
knows what it may hold, watches it and reports it. Its agent asks with a heartbeat. Nothing is asked
of Slurm: colocd follows the run already, or the agent asks again.
"""

from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.flow.nodes.prolog import reservation_of

Uuid = Annotated[str, Field(pattern=r"^[A-Za-z0-9/-]{1,96}$")]
Id = Annotated[int, Field(ge=0, le=2**32)]
#: job, restart, and the GPUs that the Prolog saw
WITHOUT = TypeAdapter(
    Annotated[
        list[tuple[Id, Id, Annotated[list[Uuid], Field(max_length=64)]]], Field(max_length=32)
    ]
)


def late_promises(store: Store, node: str, without: object) -> list[dict[str, Any]]:
    """The reservations of those runs ``without`` one that colocd follows on ``node``."""
    try:
        asked = WITHOUT.validate_python(without or [])
    except ValidationError:
        return []
    found = []
    for job_id, restart, uuids in asked:
        run = _run_on(store, node, job_id, restart)
        decision = store.decisions.of(run.decision) if run else None
        if run is None or decision is None:
            continue
        if store.runs.launched(run.decision, job_id, restart, uuids):
            text = f"started on {node}: {', '.join(uuids)}; its Prolog had no answer of colocd"
            store.note(run.decision, job_id, "launch", text)
        account = decision.account or decision.request.get("default_account")
        held = reservation_of(decision, run.tres or "", account)
        found.append({"job_id": job_id, "restart": restart, **held})
    return found


def _run_on(store: Store, node: str, job_id: int, restart: int) -> Run | None:
    for run in store.runs.of_job(job_id):
        if run.open and run.restart == restart and in_nodes(run.node or "", node):
            return run
    return None
