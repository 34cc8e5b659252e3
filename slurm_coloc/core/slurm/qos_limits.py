# SPDX-License-Identifier: Apache-2.0
"""QOS and association limits on GPUs and shards, and whether a job breaks them.

Slurm counts shards apart from GPUs: ``gres/gpu=2`` limits no shard job, and under ``MinTRES
gres/gpu=1`` a shard job waits for ever (QOSMinGRES) or is refused (DenyOnLimit). Tried on 24.11
with slurmdbd. admin/rules/limit_plan has the rule that keeps the limits' meaning.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.billing import Weights
from slurm_coloc.core.slurm.cluster import ClusterShape, wanted_partitions

GPU, SHARD, BILLING = "gres/gpu", "gres/shard", "billing"


@dataclass(frozen=True, slots=True)
class Option:
    """One kind of limit: ``name`` of `sacctmgr modify`, ``column`` of `sacctmgr show`, ``per``:
    whose use it counts, and Slurm's reason of a job that it stops."""

    name: str
    column: str
    per: str
    reason: str
    minimum: bool = False
    minutes: bool = False  # counts TRES minutes, not TRES
    qos_only: bool = False


OPTIONS = (
    Option("GrpTRES", "GrpTRES", "all its jobs together", "Grp"),
    Option("GrpTRESMins", "GrpTRESMins", "all its jobs together, minutes", "Grp", minutes=True),
    Option(
        "GrpTRESRunMins", "GrpTRESRunMins", "its running jobs, minutes to go", "Grp", minutes=True
    ),
    Option("MaxTRESPerJob", "MaxTRES", "a job", "MaxPerJob"),
    Option("MaxTRESPerNode", "MaxTRESPerNode", "a job on one node", "MaxPerNode"),
    Option("MaxTRESMinsPerJob", "MaxTRESMins", "a job, minutes", "MaxMinutesPerJob", minutes=True),
    Option("MaxTRESPerAccount", "MaxTRESPA", "an account", "MaxPerAccount", qos_only=True),
    Option("MaxTRESPerUser", "MaxTRESPU", "a user", "MaxPerUser", qos_only=True),
    Option(
        "MaxTRESRunMinsPerAccount", "MaxTRESRunMinsPA", "an account, minutes to go",
        "MaxRunMinsPerAccount", minutes=True, qos_only=True,
    ),
    Option(
        "MaxTRESRunMinsPerUser", "MaxTRESRunMinsPU", "a user, minutes to go",
        "MaxRunMinsPerUser", minutes=True, qos_only=True,
    ),
    Option("MinTRESPerJob", "MinTRES", "a job, at least", "Min", minimum=True, qos_only=True),
)  # fmt: skip
BY_NAME = {option.name: option for option in OPTIONS}

Counts = Mapping[str, int]  # TRES as Slurm writes it (gres/gpu, gres/gpu:a100, ...) -> count


def parse_counts(text: str) -> dict[str, int]:
    """GPUs, shards and billing of ``cpu=4,gres/gpu=2,billing=78``; typed ones keep their type."""
    found: dict[str, int] = {}
    for item in text.split(","):
        name, sep, value = item.strip().partition("=")
        wanted = name.startswith((GPU, SHARD)) or name == BILLING
        if sep and wanted and value.isascii() and value.isdigit():
            found[name] = int(value)
    return found


@dataclass(frozen=True, slots=True)
class LimitOwner:
    """A QOS (``account`` is "") or an association, with its limits by option name.

    ``user`` is "" for the association of an account; ``partition`` "" for all partitions.
    """

    qos: str = ""
    account: str = ""
    user: str = ""
    partition: str = ""
    parent: str = ""
    default_qos: str = ""
    flags: frozenset[str] = frozenset()
    limits: Mapping[str, Counts] = field(default_factory=dict)
    uid: int | None = None
    max_wall_s: float | None = None  # the longest time limit of one of its jobs
    preempts: frozenset[str] = frozenset()  # of a QOS: those whose jobs its own may preempt

    @property
    def title(self) -> str:
        if self.qos:
            return f"QOS {self.qos}"
        where = f" in partition {self.partition}" if self.partition else ""
        return f"user {self.user} of account {self.account}{where}" if self.user else (
            f"account {self.account}"
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SiteLimits:
    """The limits that `sacctmgr` shows: QOS by name, associations, and each partition's weights."""

    qos: Mapping[str, LimitOwner] = field(default_factory=dict)
    assocs: tuple[LimitOwner, ...] = ()
    weights: Mapping[str, Weights] = field(default_factory=dict)
    default_qos: str = "normal"

    def owners(self) -> Iterator[LimitOwner]:
        """QOS first, then accounts and users, as they were listed."""
        yield from self.qos.values()
        yield from self.assocs


NO_LIMITS = SiteLimits()


def _chain(site: SiteLimits, account: str | None, uid: int, partition: str) -> list[LimitOwner]:
    """The associations in which a job counts: its user's in that partition, else that for all, its
    account's, and the parents' up to the root."""
    own = [one for one in site.assocs if one.account == account and one.uid == uid and one.user]
    found = [one for one in own if one.partition == partition] or [
        one for one in own if not one.partition
    ]
    name = account or ""
    for _ in range(len(site.assocs)):
        above = next((one for one in site.assocs if one.account == name and not one.user), None)
        if above is None:
            break
        found.append(above)
        if not above.parent or above.parent == name:
            break
        name = above.parent
    return found


def limit_owners(
    request: JobRequest, partition: str, shape: ClusterShape, site: SiteLimits
) -> list[LimitOwner]:
    """The owners of the limits of a job in one partition; the first to set one wins (man sacctmgr:
    partition QOS, job QOS, user, account, parents; OverPartQOS puts the job's QOS first)."""
    chain = _chain(site, request.account or request.default_account, request.uid, partition)
    default = next((one.default_qos for one in chain if one.default_qos), site.default_qos)
    part = shape.partition(partition)
    of_part = site.qos.get(part.qos.lower()) if part and part.qos else None
    of_job = site.qos.get(request.qos or default)
    pair = [one for one in (of_part, of_job) if one is not None]
    if of_job is not None and "OverPartQOS" in of_job.flags:
        pair.reverse()
    return [*pair, *chain]


def longest(owners: list[LimitOwner]) -> LimitOwner | None:
    """The owner of the MaxWall of a job: the first that sets one."""
    return next((one for one in owners if one.max_wall_s is not None), None)


@dataclass(frozen=True, slots=True)
class Broken:
    """A limit that a job exceeds by its own size, so that it could never start."""

    owner: LimitOwner
    option: Option
    tres: str
    limit: int
    count: int

    @property
    def text(self) -> str:
        """``QOS short: at most gres/shard=20 for a job, 30 asked``."""
        word = "at least" if self.option.minimum else "at most"
        per = self.option.per.removesuffix(", at least")
        return f"{self.owner.title}: {word} {self.tres}={self.limit} for {per}, {self.count} asked"


def broken(owners: list[LimitOwner], asked: Counts) -> Broken | None:
    """The first limit that a job of these counts can never meet; minutes are not checked."""
    seen: set[tuple[str, str]] = set()
    for owner in owners:
        for name, limits in owner.limits.items():
            option = BY_NAME[name]
            if option.minutes:
                continue
            for tres, limit in limits.items():
                if tres not in asked:
                    continue
                # Group limits hold at every level; of the others the first one set counts.
                if option.reason != "Grp":
                    if (name, tres) in seen:
                        continue
                    seen.add((name, tres))
                count = asked[tres]
                if (count < limit) if option.minimum else (count > limit):
                    return Broken(owner, option, tres, limit, count)
    return None


def _counts(weights: Weights, gpus: int, shards: int) -> dict[str, int]:
    asked = {GPU: gpus, SHARD: shards}
    if weights.only_gpus:  # else CPUs and memory are billed too, and are not known here
        asked[BILLING] = weights.billed(gpus, shards)
    return asked


def within(
    decision: Decision, request: JobRequest, shape: ClusterShape, site: SiteLimits
) -> Decision:
    """The decision under the site's limits: a job that could never start as a share but could on
    whole GPUs gets those.

    A job that exceeds a limit either way is left to Slurm, which reports it.
    """
    if decision.action is not Action.COLLOCATE or decision.slice_mib:
        return decision  # a MIG device counts as a GPU
    if not site.qos and not site.assocs:
        return decision
    gpus = request.demand.gpus
    shards = decision.shards * decision.gpus
    for name in wanted_partitions(request, shape):
        owners = limit_owners(request, name, shape, site)
        weights = site.weights.get(name, Weights())
        refused = broken(owners, _counts(weights, 0, shards))
        if refused is None:
            continue
        # The same limits for whole GPUs: where these are exceeded too, sharing is not the cause.
        if broken(owners, _counts(weights, gpus, 0)) is None:
            return Decision(Action.EXCLUSIVE, Reason.LIMIT, detail=refused.text)
    return decision


# What Slurm calls a limit in its reasons, e.g. QOSMaxGRESPerUser, AssocGrpBilling, QOSMinGRES.
_REASON = re.compile(
    r"(?P<who>QOS|Assoc)(?P<kind>Grp|Max|Min)(?P<tres>GRES|Billing)(?P<rest>\w*)"
)  # fmt: skip
_TRES = {"GRES": ("gres/gpu", "gres/shard"), "Billing": (BILLING,)}


def limits_behind(reason: str, owners: list[LimitOwner]) -> list[str]:
    """The limits that may cause a reason such as QOSMaxGRESPerUser, in words."""
    found = _REASON.fullmatch(reason)
    if found is None:
        return []
    kind, rest = found["kind"], found["rest"]
    lines = []
    for owner in owners:
        if bool(owner.qos) != (found["who"] == "QOS"):
            continue
        for name, limits in owner.limits.items():
            option = BY_NAME[name]
            if not _fits(option, kind, rest):
                continue
            word = "at least" if option.minimum else "at most"
            parts = [
                f"{tres}={count}"
                for tres, count in limits.items()
                if tres.startswith(_TRES[found["tres"]])
            ]
            if parts:
                per = option.per.removesuffix(", at least")
                lines.append(f"{owner.title} allows {per} {word} {', '.join(parts)}")
    return lines


def _fits(option: Option, kind: str, rest: str) -> bool:
    """Whether a reason's middle (Grp, Max, Min) and end (PerUser, RunMinutes, ...) match."""
    if not option.name.startswith(kind):
        return False
    minutes = "Min" in rest
    if minutes != option.minutes:
        return False
    if kind != "Max":
        return ("Run" in rest) == ("Run" in option.name)
    # Slurm 24.11 writes QOSMaxGRESPerAccount as well as QOSMaxGRESPerAcct.
    ends = (("PerAcc", "PerAccount"), ("PerUser", "PerUser"), ("PerNode", "PerNode"))
    for mark, end in ends:
        if mark in rest:
            return option.name.endswith(end)
    return option.name.endswith("PerJob")
