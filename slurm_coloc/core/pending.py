# SPDX-License-Identifier: Apache-2.0
"""Slurm's reason codes of waiting jobs in words (slurm.h of 24.11; squeue's manual)."""

# Reasons under which it is worth asking what resource binds; under the others nothing is short.
RESOURCE_REASONS = (
    "", "None", "Resources", "Priority", "Constraints", "ReqNodeNotAvail", "PartitionConfig",
    "BadConstraints",
)  # fmt: skip

_TEXTS = {
    "": "the scheduler has not looked at it yet",
    "None": "the scheduler has not looked at it yet",
    "Resources": "it is first in line and waits for resources to become free",
    "Priority": "jobs of a higher priority come before it",
    "BeginTime": "its start time has not come; Slurm sets one about two minutes ahead on a requeue",
    "Dependency": "it waits for another job",
    "DependencyNeverSatisfied": "the job it depends on can no longer end as asked",
    "JobHeldUser": "its owner holds it: scontrol release ends that",
    "JobHeldAdmin": "an administrator, or a raised priority of 0, holds it",
    "job requeued in held state": "it was put back into the queue and is held",
    "JobArrayTaskLimit": "its array runs as many tasks at once as it asked for",
    "PartitionConfig": "its partition cannot give what it asks for",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionTimeLimit": "its time limit exceeds that of its partition",
    "Licenses": "it waits for a licence",
    "Constraints": "no node meets its constraints at this moment",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "Reservation": "it waits for its reservation",
    "BadConstraints": "no node can meet its constraints",
    "launch failed requeued held": "its launch failed; it was put back and is held",
}


def base_reason(reason: str) -> str:
    """``ReqNodeNotAvail, UnavailableNodes:n1`` as ``ReqNodeNotAvail``."""
    return reason.split(",", 1)[0].strip()


def pending_text(reason: str) -> str:
    """What Slurm's reason means, without a full stop."""
    base = base_reason(reason)
    if base in _TEXTS:
        return _TEXTS[base]
    if base.startswith(("QOS", "Assoc", "MaxJobs", "Group", "InvalidQOS")):
        return "a limit of its QOS, account or user is reached"
    return "see `man squeue`, JOB REASON CODES"


def resources_may_bind(reason: str) -> bool:
    """Whether a job that waits for ``reason`` may lack resources."""
    return base_reason(reason) in RESOURCE_REASONS
