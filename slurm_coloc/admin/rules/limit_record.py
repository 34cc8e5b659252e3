# SPDX-License-Identifier: Apache-2.0
"""What `coloc limits --apply` set, so that `--undo` takes back that and nothing else.

That a limit equals the rule's does not tell whose it is: a site may have set the same before.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_coloc.admin.rules.limit_plan import REMOVED, Change, Plan
from slurm_coloc.core.slurm.qos_limits import BY_NAME, LimitOwner, SiteLimits


@dataclass(frozen=True, slots=True)
class Applied:
    """One limit of a QOS or association as --apply found it and as it left it (REMOVED: none)."""

    qos: str
    account: str
    user: str
    partition: str
    limit: str  # the option's name, as `sacctmgr modify` takes it
    before: dict[str, int]
    after: dict[str, int]

    @property
    def whose(self) -> tuple[str, str, str, str]:
        """The QOS or association."""
        return self.qos, self.account, self.user, self.partition

    @property
    def key(self) -> tuple[str, ...]:
        """Which limit of whom."""
        return *self.whose, self.limit


def applied(change: Change) -> Applied:
    """The record of a change."""
    holder = change.holder
    return Applied(
        holder.qos,
        holder.account,
        holder.user,
        holder.partition,
        change.option.name,
        change.old,
        change.new,
    )


def added(record: Iterable[Applied], one: Applied) -> tuple[Applied, ...]:
    """The record with one more; of the same limit the last change counts: what an earlier one had
    set is gone, else there had been nothing to do."""
    return (*removed(record, one.key), one)


def removed(record: Iterable[Applied], key: tuple[str, ...]) -> tuple[Applied, ...]:
    """The record without one limit."""
    return tuple(one for one in record if one.key != key)


def take_back(record: Iterable[Applied], site: SiteLimits, done: Plan) -> Plan:
    """What restores every limit that still is as --apply left it; a note for each other one.
    ``done``: the present plan, for its way and price."""
    holders = {(h.qos, h.account, h.user, h.partition): h for h in site.owners()}
    changes: list[Change] = []
    notes: list[str] = []
    for one in record:
        holder = holders.get(one.whose) or LimitOwner(*one.whose)
        now = holder.limits.get(one.limit, {})
        if all(now.get(tres, REMOVED) == count for tres, count in one.after.items()):
            changes.append(Change(holder, BY_NAME[one.limit], one.before, one.after))
        else:
            notes.append(f"{holder.title}, {one.limit}: was changed since --apply; left as it is")
    return Plan(done.way, done.each, done.why, tuple(changes), notes=tuple(notes))
