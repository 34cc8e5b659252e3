# SPDX-License-Identifier: Apache-2.0
"""Stage record: whether an ended run is put back, and what its next try asks for."""

from dataclasses import dataclass

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import RecoveryConfig
from slurm_coloc.core.decide.decision import Action
from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.records.runs import Evidence, Run, StoredDecision, Use, shards_of, shared
from slurm_coloc.core.recover.next_try import (
    Caps,
    End,
    Held,
    Need,
    Steps,
    Tally,
    Verdict,
    Way,
    again,
    grow,
    judge,
)
from slurm_coloc.core.recover.outcome import WHOSE, Blame, Outcome
from slurm_coloc.core.slurm.gres import called, count_of, parse_gres
from slurm_coloc.core.slurm.job import JobView

#: causes for which the node is excluded for a while: they may still be present on its GPU
AVOIDED = (Blame.NEIGHBOUR, Blame.FOREIGN, Blame.FULL, Blame.HARDWARE)
#: PyTorch knows the first name in every version and warns of it from 2.9 on; 2.9 ignores the second
#: for this very setting (pytorch/pytorch#183387), 2.11 takes it
PIECES = (
    "its memory was fragmented: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may help"
    " (PYTORCH_ALLOC_CONF from PyTorch 2.11 on)"
)


@dataclass(frozen=True, slots=True)
class Next:
    """What comes after an ended run. ``way`` and ``tres``: of the next try, where there is one.
    ``grown``: what the waiting tasks of its array should ask for, "" for no change."""

    verdict: Verdict
    way: Way = Way.WHOLE
    tres: str = ""
    grown: str = ""
    cause: str = str(Blame.SELF)


def after(
    store: Store,
    recovery: RecoveryConfig,
    run: Run,
    decision: StoredDecision,
    outcome: Outcome,
    fault: Blame | None,
    need: Need,
    now: float,
) -> Next:
    """What comes after ``run``, which ended so; ``fault``: the cause of its end."""
    on_share = shared(run.tres, decision)
    placed = decision.action in (Action.COLLOCATE, Action.EXCLUSIVE)
    end = End(outcome, fault, on_share, placed)
    caps = Caps(
        recovery.max_per_job,
        recovery.max_per_user_day,
        recovery.max_per_day,
        recovery.max_victim_requeues,
    )
    before = store.recoveries.of_job(run.decision, run.job_id)
    same = sum(row.cause == fault for row in before)
    own = store.recoveries.tally(run.job_id, run.decision, run.uid, now)
    tally = Tally(*own, cause=same)
    may = decision.may_requeue
    verdict = judge(end, may_requeue=may, enabled=recovery.enabled, tally=tally, caps=caps)
    held = _held(run, decision, before)
    if end.victim:
        way, tres = again(held, tally, caps)
        return Next(verdict, way, tres, cause=str(fault))
    if not end.own or not on_share:
        return Next(verdict)
    steps = Steps(recovery.steps, recovery.more_mib, recovery.more_ratio)
    way, tres = grow(held, need, steps, caps.per_job - tally.own)
    # The next request, also for a run that is not put back: its array's other tasks need the same.
    return Next(verdict, way, tres, grown=tres, cause=str(fault or Blame.UNKNOWN))


def _held(run: Run, decision: StoredDecision, before: list[Recovery]) -> Held:
    tres = run.tres or ""
    shards = shards_of(tres, decision) if count_of(tres, "shard") else 0
    steps = sum(row.way == Way.MORE for row in before)
    if not steps and shards > decision.shards:
        steps = 1  # by another task of its array
    return Held(
        tres, decision.exclusive_tres, shards, decision.shard_mib, decision.shards_per_gpu, steps
    )


def need_of(evidence: Evidence | None, peak_mib: int | None, uses: list[Use]) -> Need:
    """What is known of the memory that a run wanted, from its log and from what was measured."""
    told: Evidence = evidence or {}
    measured = [last["held_mib"] for one in uses if (last := one.get("last"))]
    held = max([*measured, told.get("in_use_mib") or 0])
    return Need(peak_mib, held or None, told.get("requested_mib"))


def plan(
    store: Store, recovery: RecoveryConfig, run: Run, view: JobView | None, found: Next, now: float
) -> None:
    """Add the recovery to the work list; within the transaction that closes ``run``."""
    before = store.recoveries.of_job(run.decision, run.job_id)
    base = before[0].base if before else view.priority if view else 0
    # The owner's, as they were before the first recovery changed them.
    nice = next((row.nice for row in before if row.nice is not None), None)
    qos = next((row.qos for row in before if row.qos), None)
    fronts = store.recoveries.fronts(run.uid, now)
    own = found.verdict is Verdict.REQUEUE
    other_node = found.way is Way.SAME and found.cause in AVOIDED
    store.recoveries.add(
        Recovery(
            *run.key,
            uid=run.uid,
            tres=found.tres,
            cause=found.cause,
            way=str(found.way),
            base=base,
            nice=nice,
            qos=qos,
            front=own and fronts < recovery.max_first_per_user_day,
            avoid=run.node if other_node else None,
            created_s=now,
            updated_s=now,
        )
    )


def words(found: Next, decision: StoredDecision) -> str:
    """What the next try asks for, in words."""
    if found.way is Way.SAME:
        return "requeue with the same request planned: nothing of it counts against the job"
    if found.way is Way.MORE:
        shards = sum(item.count for item in parse_gres(found.tres) if item.name == "shard")
        mib = shards * decision.shard_mib
        return f"requeue with more memory planned: {mib / 1024:.1f} GiB ({found.tres})"
    return f"requeue on {called(found.tres)} planned ({found.tres})"


def why_not(found: Next) -> str:
    """Why a run that ran out of GPU memory is not put back, for its owner."""
    if found.verdict is Verdict.DOES_NOT_FIT:
        return "not requeued: it had all that it can be given, this model does not fit this card"
    return f"not requeued: {found.verdict}"


def whose(fault: Blame, why: str) -> str:
    """The cause, and what the owner can do about it."""
    text = f"{WHOSE[fault]}: {why}"
    return f"{text}; {PIECES}" if fault is Blame.FRAGMENTATION else text
