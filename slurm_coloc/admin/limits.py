# SPDX-License-Identifier: Apache-2.0
"""``coloc limits``: limits in GPUs that do not count shares, and what makes them count.

It works while colocd is dead. --apply reads the limits, sets what is missing and reads them again:
a second run finds nothing to do. It records each change first (admin/limits_applied); --undo takes
back these changes and no others.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from slurm_coloc.adapters.slurm import connect
from slurm_coloc.admin import limits_applied
from slurm_coloc.admin.rules.limit_plan import Change, Plan, command, plan
from slurm_coloc.admin.rules.limit_record import added, applied, removed, take_back
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.billing import coarse, good, kinds_of, parse_weights, proposed
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import SiteLimits
from slurm_coloc.errors import ColocError, SlurmError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Price:
    """A partition's TRESBillingWeights, what they should be ("" where they are right), and a
    warning ("" where there is none)."""

    partition: str
    now: str
    proposed: str
    warning: str


@dataclass(frozen=True, slots=True)
class Found:
    """All that `coloc limits` shows."""

    shape: ClusterShape
    site: SiteLimits
    plan: Plan
    prices: tuple[Price, ...]

    def commands(self, *, reverse: bool = False) -> list[str]:
        """The sacctmgr lines of the plan, or those that take it back."""
        name = self.shape.name
        return [" ".join(command(one, name, undo=reverse)) for one in self.plan.changes]


def read(config: Config, *, back: bool = False) -> Found:
    """Read Slurm and slurmdbd; ``back``: plan the reverse. Raises SlurmError."""
    return asyncio.run(_read(config, back))


async def _read(config: Config, back: bool) -> Found:
    slurm = connect(config.daemon, briefly=True)
    shape = await slurm.shape()
    weights = await slurm.billing_weights()
    site = await slurm.limits(shape.name)
    clusters = await slurm.clusters()
    wanted = plan(site, shape, config.pool.partitions, clusters=len(clusters))
    if back:
        wanted = _reverse(config, shape, site, wanted)
    return Found(shape, site, wanted, tuple(_prices(shape, site, weights, config.pool.partitions)))


def _reverse(config: Config, shape: ClusterShape, site: SiteLimits, done: Plan) -> Plan:
    record = limits_applied.read(config, shape.name)
    if record is None:
        text = (
            f"no record of what --apply set ({limits_applied.path_of(config)}): nothing is undone"
        )
        return Plan(done.way, done.each, done.why, notes=(text,))
    return take_back(record, site, done)


def _prices(
    shape: ClusterShape, site: SiteLimits, texts: dict[str, str], pool: tuple[str, ...]
) -> list[Price]:
    found = []
    for part in shape.partitions:
        kinds = kinds_of(shape, part.name)
        if not kinds or (pool and part.name not in pool):
            continue
        weights = site.weights[part.name]
        better = "" if good(weights, kinds) else proposed(weights, kinds)
        warning = coarse(parse_weights(better) if better else weights, kinds)
        found.append(Price(part.name, texts.get(part.name, ""), better, warning))
    return found


def apply(config: Config, found: Found, say: Say, *, back: bool = False) -> None:
    """Make the plan's changes and read the limits again.

    Raises SlurmError where one is refused, ColocError (code ``not-applied``) where a change cannot
    be seen afterwards, (``no-record``) where it cannot be recorded: then nothing more is set.
    """
    asyncio.run(_apply(config, found, say, back))


async def _apply(config: Config, found: Found, say: Say, back: bool) -> None:
    slurm = connect(config.daemon, briefly=True)
    cluster = found.shape.name
    record = limits_applied.read(config, cluster) or ()
    for change in found.plan.changes:
        key = applied(change).key
        if not back:  # first: killed after this line, --undo finds that nothing was set
            record = added(record, applied(change))
            limits_applied.write(config, cluster, record)
        try:
            await slurm.set_limit(*command(change, cluster))
        except SlurmError as err:
            if not back and not err.away:  # an order without answer may still be carried out
                limits_applied.write(config, cluster, removed(record, key))
            raise
        if back:
            record = removed(record, key)
            limits_applied.write(config, cluster, record)
        say(f"set: {change.text}")
    if back and record:  # what was changed since is the site's now
        limits_applied.write(config, cluster, ())
    left: tuple[Change, ...] = (await _read(config, back)).plan.changes
    if left:
        names = "; ".join(change.text for change in left)
        raise ColocError(f"sacctmgr took the change, but it cannot be seen: {names}", "not-applied")
