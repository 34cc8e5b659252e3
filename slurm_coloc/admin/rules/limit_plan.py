# SPDX-License-Identifier: Apache-2.0
"""How limits in GPUs keep their meaning for shares: the rule, and the sacctmgr commands it takes.

**The rule.** A limit of N GPUs stays a limit of N GPUs' worth. ``gres/gpu=N`` itself always stays.

- Where GPUs alone are billed, at one price P in every partition (core/slurm/billing.one_price), the
  same limit gets ``billing=N x P``: N whole GPUs, or all shards of N GPUs, or any mixture, exactly.
- Elsewhere it gets ``gres/shard=N x S`` (S: shards of the GPU that has the fewest): N whole GPUs
  and, beside them, shares worth N.
- ``MinTRES gres/gpu=1`` ("GPU jobs only") becomes ``billing=1`` in the first case. In the second it
  stays, and so does any other minimum: colocd leaves the jobs of that QOS on whole GPUs.

What a site has set itself on the same limit (billing or gres/shard) is never touched.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from slurm_coloc.core.slurm.billing import one_price
from slurm_coloc.core.slurm.cluster import ClusterShape
from slurm_coloc.core.slurm.qos_limits import (
    BILLING,
    GPU,
    OPTIONS,
    SHARD,
    Counts,
    LimitOwner,
    Option,
    SiteLimits,
)

REMOVED = -1  # sacctmgr's word for "no limit"


@dataclass(frozen=True, slots=True)
class Change:
    """Values of one limit to set (REMOVED: clear), and what stood there before."""

    holder: LimitOwner
    option: Option
    new: dict[str, int]
    old: dict[str, int]

    @property
    def text(self) -> str:
        """One line for people."""
        return f"{self.holder.title}, {self.option.name}: {_text(self.new)}"


def _text(values: dict[str, int]) -> str:
    return ",".join(f"{tres}={count}" for tres, count in values.items())


def command(change: Change, cluster: str, *, undo: bool = False) -> tuple[str, ...]:
    """The sacctmgr call of a change or of its reverse, without -i and -Q."""
    holder = change.holder
    values = _text(change.old if undo else change.new)
    if holder.qos:
        where = ["qos", "where", f"name={holder.qos}"]
    elif holder.user:
        where = ["user", "where", f"name={holder.user}", f"account={holder.account}"]
        where += [f"cluster={cluster}"]
        where += [f"partition={holder.partition}"] if holder.partition else []
    else:
        where = ["account", "where", f"name={holder.account}", f"cluster={cluster}"]
    return ("sacctmgr", "modify", *where, "set", f"{change.option.name}={values}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to set. ``way`` is BILLING or SHARD; ``each``: price or shards of a GPU; ``why`` says
    why it is not BILLING; ``kept`` counts limits that have their counterpart already."""

    way: str
    each: int
    why: str = ""
    changes: tuple[Change, ...] = ()
    kept: int = 0
    notes: tuple[str, ...] = field(default=())


def fewest_shards(shape: ClusterShape, pool: tuple[str, ...]) -> int:
    """Shards of the shared GPU that has the fewest; 0 where none is shared."""
    return min(
        (
            node.shards_per_gpu
            for node in shape.nodes
            if node.shards_per_gpu and (not pool or set(pool) & set(node.partitions))
        ),
        default=0,
    )


def plan(
    site: SiteLimits, shape: ClusterShape, pool: tuple[str, ...] = (), *, clusters: int = 1
) -> Plan:
    """What makes every limit in GPUs hold for shares too; empty where all is done. ``clusters``:
    how many slurmdbd has: a QOS holds on all of them, and prices differ."""
    price, why = one_price(shape, site.weights)
    shards = fewest_shards(shape, pool)
    way, each = (BILLING, price) if price else (SHARD, shards)
    changes: list[Change] = []
    notes: list[str] = []
    kept = 0
    for holder, option, limits in _rows(site):
        if typed := [tres for tres in limits if tres.startswith(f"{GPU}:")]:
            notes.append(
                f"{holder.title}, {option.name} {', '.join(typed)}: has no counterpart, running"
                " shards have no type; use a partition QOS for each type"
            )
        if GPU not in limits:
            continue
        if option.minimum:
            found = _minimum(holder, option, limits, way)
            if found is None:
                notes.append(
                    f"{holder.title}, {option.name} {GPU}={limits[GPU]}: colocd leaves its jobs on"
                    " whole GPUs (reason limit)"
                )
        elif limits.keys() & {SHARD, BILLING}:
            found, kept = None, kept + 1
            notes += _differs(holder, option, dict(limits), way, each, shards)
        else:
            found = _maximum(holder, option, limits[GPU], way, each, shards)
        if found and holder.qos and clusters > 1:
            notes.append(
                f"{found.text}: not set here: a QOS holds on all {clusters} clusters of this"
                " slurmdbd, whatever their prices"
            )
        elif found:
            changes.append(found)
    return Plan(way, each, why, tuple(changes) if shards else (), kept, tuple(notes))


def _rows(site: SiteLimits) -> Iterator[tuple[LimitOwner, Option, dict[str, int]]]:
    for holder in site.owners():
        for option in OPTIONS:
            if limits := holder.limits.get(option.name):
                yield holder, option, dict(limits)


def _counterpart(option: Option, gpus: int, way: str, each: int, shards: int) -> dict[str, int]:
    # Nothing is billed per node, so there shards are limited in any case.
    if option.name == "MaxTRESPerNode":
        return {SHARD: gpus * shards}
    return {way: gpus * each}


def _maximum(
    holder: LimitOwner, option: Option, gpus: int, way: str, each: int, shards: int
) -> Change:
    new = _counterpart(option, gpus, way, each, shards)
    return Change(holder, option, new, dict.fromkeys(new, REMOVED))


def _minimum(holder: LimitOwner, option: Option, limits: Counts, way: str) -> Change | None:
    # Beside one of the site's own it stays: billing=1 would replace a larger one.
    if way != BILLING or limits[GPU] != 1 or BILLING in limits or SHARD in limits:
        return None
    return Change(holder, option, {GPU: REMOVED, BILLING: 1}, {GPU: 1, BILLING: REMOVED})


def _differs(
    holder: LimitOwner, option: Option, limits: dict[str, int], way: str, each: int, shards: int
) -> Iterator[str]:
    for tres, count in _counterpart(option, limits[GPU], way, each, shards).items():
        if limits.get(tres) != count:
            yield (
                f"{holder.title}, {option.name}: {_text(limits)} stands; the rule would say"
                f" {tres}={count}; left as it is"
            )
