# SPDX-License-Identifier: Apache-2.0
"""The share of a GPU that a run had, by its decision and its request in Slurm (``tres``)."""

from typing import Protocol

from slurm_coloc.adapters.store import Store
from slurm_coloc.core.records.runs import StoredDecision
from slurm_coloc.core.slurm.gres import count_of, same_gres


class Decided(Protocol):
    """What a decision says of a share."""

    @property
    def action(self) -> str:
        """See core/decide/decision.Action."""

    @property
    def exclusive_tres(self) -> str:
        """The same job on whole GPUs."""


def shared(tres: str | None, decision: Decided) -> bool:
    """Whether a run held a share of a GPU: it was shared, and not yet put on a whole one."""
    return decision.action == "collocate" and not same_gres(tres or "", decision.exclusive_tres)


def promised_mib(tres: str | None, decision: StoredDecision) -> int:
    """The memory of one GPU that the run was promised; 0 where it had a whole one."""
    return shards_of(tres, decision) * decision.shard_mib if shared(tres, decision) else 0


def shards_of(tres: str | None, decision: StoredDecision) -> int:
    """Shards that a run on a share had of each GPU: recovery, another task's outcome, the owner or
    an admin may have changed the count since the decision."""
    shards = count_of(tres or "", "shard")
    return decision.shards if shards is None else shards


def promised_to(store: Store, job_ids: list[int]) -> dict[int, int]:
    """The memory promised to other jobs' newest runs, by job id; only known shares."""
    found: dict[int, int] = {}
    for job_id in job_ids:
        runs = store.runs.of_job(job_id)
        decision = store.decisions.of(runs[-1].decision) if runs else None
        mib = promised_mib(runs[-1].tres, decision) if decision else 0
        if mib:
            found[job_id] = mib
    return found
