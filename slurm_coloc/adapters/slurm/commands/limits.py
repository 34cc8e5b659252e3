# SPDX-License-Identifier: Apache-2.0
"""Parsers of `sacctmgr -nP show`: QOS and association limits.

The columns are the same from 22.05 to 26.05. `sacctmgr` tells a TRES by its name, with MiB for
memory; only gres and billing are read, and of a QOS whom it may preempt. A limit that a user
inherits from his account is not repeated in the user's own row.
"""

import pwd
from collections.abc import Mapping
from dataclasses import replace

from slurm_coloc.adapters.slurm.commands.parse import limit_s, listed
from slurm_coloc.core.slurm.qos_limits import OPTIONS, LimitOwner, parse_counts

WALL = "MaxWall"  # of a job; sacctmgr's own short name for both kinds
QOS_COLUMNS = ("Name", "Flags", *(option.column for option in OPTIONS), WALL, "Preempt")
_OF_ASSOC = tuple(option for option in OPTIONS if not option.qos_only)
ASSOC_COLUMNS = (
    "Account", "User", "Partition", "ParentName", "DefaultQOS",
    *(option.column for option in _OF_ASSOC), WALL,
)  # fmt: skip


def _rows(text: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    lines = (line.split("|") for line in text.split("\n") if line.strip())
    return [dict(zip(columns, line, strict=False)) for line in lines]


def _limits(row: Mapping[str, str]) -> dict[str, dict[str, int]]:
    found = {option.name: parse_counts(row.get(option.column, "")) for option in OPTIONS}
    return {name: counts for name, counts in found.items() if counts}


def parse_qos(text: str) -> dict[str, LimitOwner]:
    """`sacctmgr -nP show qos` with QOS_COLUMNS, by name."""
    return {
        row["Name"]: LimitOwner(
            qos=row["Name"],
            flags=frozenset(listed(row["Flags"])),
            limits=_limits(row),
            max_wall_s=limit_s(row.get(WALL, "")),
            preempts=frozenset(listed(row.get("Preempt", ""))),
        )
        for row in _rows(text, QOS_COLUMNS)
    }


def parse_assocs(text: str) -> tuple[LimitOwner, ...]:
    """`sacctmgr -nP show assoc` with ASSOC_COLUMNS: every account, and the users whose limits or
    default QOS differ from their account's. The users' uid is still to be found: with_uids."""
    found: list[LimitOwner] = []
    accounts: dict[str, LimitOwner] = {}
    for row in _rows(text, ASSOC_COLUMNS):
        one = LimitOwner(
            account=row["Account"],
            user=row["User"],
            partition=row["Partition"],
            parent=row["ParentName"],
            default_qos=row["DefaultQOS"],
            limits=_limits(row),
            max_wall_s=limit_s(row.get(WALL, "")),
        )
        if not one.user:
            accounts[one.account] = one
        elif not one.limits and one.max_wall_s is None:
            above = accounts.get(one.account)
            if one.default_qos == (above.default_qos if above else ""):
                continue
        found.append(one)
    return tuple(found)


def with_uids(
    found: tuple[LimitOwner, ...], known: dict[str, int | None]
) -> tuple[LimitOwner, ...]:
    """The same with each user's uid (None: no such user here). ``known`` is kept between calls: a
    directory service is asked once a name. May block: call it in a thread."""
    for one in found:
        if one.user and one.user not in known:
            try:
                known[one.user] = pwd.getpwnam(one.user).pw_uid
            except KeyError:
                known[one.user] = None
    return tuple(replace(one, uid=known[one.user]) if one.user else one for one in found)
