# SPDX-License-Identifier: Apache-2.0
"""Adds a submission to the waiting jobs before Slurm shows it."""

from dataclasses import replace

from slurm_coloc.core.decide.decision import Action, Decision
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.place.steering import Snapshot, Waiting
from slurm_coloc.core.slurm.cluster import ClusterShape, keeps_users_apart, plain, wanted_partitions
from slurm_coloc.flow.cluster.context import ShareRequest
from slurm_coloc.flow.place.requests import nodes_for_submission


def simple(request: JobRequest, decision: Decision) -> bool:
    """Whether a submission may be pinned at once: one GPU, one job, no other option."""
    return (
        decision.action is Action.COLLOCATE
        and decision.gpus == 1
        and not decision.slice_mib
        and not request.array
        and not request.reservation
        and plain(request.features)
    )


def as_waiting(
    submitted: ShareRequest, shards: int, shape: ClusterShape, tier: int, snapshot: Snapshot
) -> Waiting:
    """A submission as a waiting job, with a number that Slurm does not use."""
    request = submitted.request
    return Waiting(
        min([0, *(one.job_id for one in snapshot.waiting)]) - 1,
        "",
        request.uid,
        1,
        shards,
        nodes_for_submission(request, shape),
        ours=True,
        run_s=request.time_limit * 60.0 if request.time_limit else None,
        smact=submitted.smact,
        cpus=request.min_cpus or 1,
        memory_mib=request.min_mem_per_node or 0,
        max_slowdown=submitted.decision.max_slowdown,
        tier=tier,
        account=request.account or request.default_account or "",
        exclusive_user=keeps_users_apart(wanted_partitions(request, shape), shape),
    )


def joined(snapshot: Snapshot, job: Waiting) -> Snapshot:
    """The snapshot with a new submission, last of its tier: its priority is not known yet."""
    waiting = snapshot.waiting
    place = next((n for n, one in enumerate(waiting) if one.tier < job.tier), len(waiting))
    return replace(snapshot, waiting=(*waiting[:place], job, *waiting[place:]))
