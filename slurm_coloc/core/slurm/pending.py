# SPDX-License-Identifier: Apache-2.0
"""Slurm's reason codes of waiting jobs, in words (slurm.h of 24.11; squeue's manual)."""

import re

# Reasons under which a resource may be short.
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
    "QOSNotAllowed": "its QOS is not allowed to it or in its partition",
    "InvalidQOS": "its QOS no longer exists",
    "InvalidAccount": "its account no longer exists",
    "QOSUsageThreshold": "its account used less or more than its QOS asks for",
    "launch failed requeued held": "its launch failed; it was put back and is held",
}


def base_reason(reason: str) -> str:
    """``ReqNodeNotAvail, UnavailableNodes:n1`` as ``ReqNodeNotAvail``."""
    return reason.split(",", 1)[0].strip()


# QOSMaxGRESPerUser, AssocGrpBilling, QOSMinGRES, QOSMaxJobsPerUserLimit, ... (slurm.h of 24.11).
_LIMIT = re.compile(r"(?P<who>QOS|Assoc)(?P<kind>Grp|Max|Min)(?P<what>\w+)")
_WHAT = (
    ("GRES", "GPUs or shards (gres)"), ("Billing", "billing"), ("Cpu", "CPUs"), ("CPU", "CPUs"),
    ("Mem", "memory"), ("Node", "nodes"), ("Submit", "submitted jobs"), ("Jobs", "running jobs"),
    ("Wall", "run time"),
)  # fmt: skip


def _limit_text(who: str, kind: str, what: str) -> str:
    """A limit's reason in words: its owner, its resource, and when it ends."""
    name = next((text for mark, text in _WHAT if what.startswith(mark)), "a resource")
    whose = "its QOS" if who == "QOS" else "its account or user"
    minutes = " over time" if "Min" in what else ""
    if kind == "Min":
        return f"{whose} asks for more {name} than the job does: it can never start like this"
    if "PerJob" in what or "PerNode" in what:
        return f"{whose} allows one job less {name}{minutes}: it can never start like this"
    return f"the limit of {whose} on {name}{minutes} is reached: it starts when others end"


def pending_text(reason: str) -> str:
    """What Slurm's reason means, without a full stop."""
    base = base_reason(reason)
    if base in _TEXTS:
        return _TEXTS[base]
    if found := _LIMIT.fullmatch(base):
        return _limit_text(found["who"], found["kind"], found["what"])
    if base.startswith(("QOS", "Assoc", "MaxJobs", "Group")):
        return "a limit of its QOS, account or user is reached"
    return "see `man squeue`, JOB REASON CODES"


def resources_may_bind(reason: str) -> bool:
    """Whether a job with this reason may lack resources."""
    return base_reason(reason) in RESOURCE_REASONS
