# SPDX-License-Identifier: Apache-2.0
"""Checks of `coloc doctor` and `coloc config check`: whether sharing.with can be kept, pure."""

from collections.abc import Collection, Sequence

from slurm_coloc.admin.rules.finding import Finding, Status
from slurm_coloc.core.place.placing import ShareWith
from slurm_coloc.core.slurm.cluster import ClusterShape, keeps_users_apart

NAME = "sharing-with"
#: what a site can do
WAYS = (
    'placement.mode = "steered"',
    "PartitionName=... ExclusiveUser=YES",
    'sharing.with = "anyone"',
)


def shared_partitions(
    shape: ClusterShape, pool: Collection[str], steered: Collection[str] = ()
) -> tuple[str, ...]:
    """Partitions with shards whose GPUs may be shared, without those that have a steered node."""
    return tuple(
        part.name
        for part in shape.partitions
        if (not pool or part.name in pool)
        and any(node.shards and part.name in node.partitions for node in shape.nodes)
        and not any(node.name in steered and part.name in node.partitions for node in shape.nodes)
    )


def refusal(
    shape: ClusterShape, share_with: ShareWith, pool: Collection[str], steered: Collection[str]
) -> str:
    """Why the mode "on" hands out no shares in some partition; "" where it does in all.
    ``steered``: the nodes on which colocd pins jobs."""
    if share_with == "anyone":
        return ""
    found = [
        name for name in shared_partitions(shape, pool, steered) if not _exclusive(name, shape)
    ]
    if not found:
        return ""
    return (
        f'no shares in partition {", ".join(found)}: sharing.with = "{share_with}", and nothing'
        " there keeps a share off other users' GPUs; --coloc jobs get whole GPUs"
    )


def ways() -> str:
    """What a site can do about it."""
    return "one of: " + "; ".join(WAYS)


def apart(
    shape: ClusterShape,
    share_with: ShareWith,
    pool: Collection[str],
    steered: Collection[str],
    *,
    on: bool,
) -> Finding:
    """Whether users are kept apart. ``on``: some jobs are changed already (mode)."""
    if why := refusal(shape, share_with, pool, steered):
        return Finding(NAME, Status.FAIL if on else Status.WARN, why, ways())
    if share_with == "anyone":
        return Finding(NAME, Status.OK, "anyone: jobs of all users share GPUs")
    exclusive = [one for one in shared_partitions(shape, pool) if _exclusive(one, shape)]
    kept = [
        *([f"pins on {_some(sorted(steered))}"] if steered else []),
        *([f"ExclusiveUser=YES of {_some(exclusive)}"] if exclusive else []),
    ]
    return Finding(NAME, Status.OK, f"{share_with}: by {' and '.join(kept) or 'nobody who shares'}")


def _exclusive(name: str, shape: ClusterShape) -> bool:
    return keeps_users_apart((name,), shape)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def one_server(share_with: ShareWith, users: str, method: str, require_fence: bool) -> Finding:
    """Whether jobs of several users on one GPU are all fenced."""
    name = "sharing-users"
    if share_with == "user":
        return Finding(name, Status.OK, "one user on a GPU: sharing.users does not matter")
    if users == "all" or method in ("streams", "mig") or require_fence:
        return Finding(name, Status.OK, f'sharing.users = "{users}"')
    return Finding(
        name,
        Status.WARN,
        'sharing.users = "one": where several users are on a GPU, MPS fences the first one alone',
        'sharing.users = "all", or gate.require_fence = true, or sharing.with = "user"',
    )
