# SPDX-License-Identifier: Apache-2.0
"""What part of a GPU a run had, from its decision and what Slurm shows that it asks for."""

from slurm_coloc.adapters.store import Row, Store
from slurm_coloc.core.slurm.gres import count_of, same_gres


def shared(run: Row, decision: Row) -> bool:
    """Whether this run held a share of a GPU: it was taken, and not yet put on a whole one."""
    return decision["action"] == "collocate" and not same_gres(
        run["tres"] or "", decision["exclusive_tres"]
    )


def promised_mib(run: Row, decision: Row) -> int:
    """The memory of one GPU that the run was promised; 0 where it had a whole one."""
    return int(shards_of(run, decision) * decision["shard_mib"]) if shared(run, decision) else 0


def shards_of(run: Row, decision: Row) -> int:
    """Shards that a run on a share had of each GPU: recovery, a sibling's outcome, the owner or an
    admin may have changed the count since the decision."""
    shards = count_of(run["tres"], "shard")
    return int(decision["shards"] if shards is None else shards)


def promised_to(store: Store, job_ids: list[int]) -> dict[int, int]:
    """The same of other jobs' newest runs, by job id; those that shared, and that we know."""
    found: dict[int, int] = {}
    for job_id in job_ids:
        runs = store.runs_of_job(job_id)
        decision = store.decision(runs[-1]["decision"]) if runs else None
        mib = promised_mib(runs[-1], decision) if decision else 0
        if mib:
            found[job_id] = mib
    return found
