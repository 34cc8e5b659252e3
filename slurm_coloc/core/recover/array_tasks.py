# SPDX-License-Identifier: Apache-2.0
"""The new request of an array's waiting tasks after one of its tasks has ended.

The tasks of an array share one decision and are assumed to be alike: what one ran into, the others
would run into. Running tasks are left alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.gres import count_of, same_gres, with_shards
from slurm_coloc.core.slurm.job import JobView, Target, by_record

# A smaller share leaves this much above the largest measured peak, needs at least so many measured
# tasks that agree (in a sweep over batch sizes they do not, and the next may be the largest), and
# must save a quarter of the shards.
HEADROOM = 1.15
PEAKS = 3
AGREE = 1.05
WORTH = 0.75


@dataclass(frozen=True, slots=True)
class Share:
    """A task's share: ``tres`` with ``shards`` of ``shard_mib`` each, out of ``per_gpu`` of one
    GPU; ``whole``: the request of the same task on a whole GPU, "" where that is not known.
    ``least``: shards that it needs whatever its memory (jobs on a GPU, SM activity)."""

    tres: str
    whole: str
    shards: int
    shard_mib: int
    per_gpu: int
    least: int = 1


def new_request(
    outcome: Outcome,
    share: Share,
    peaks_mib: Sequence[int] = (),
    *,
    lasting_mib: Sequence[int] | None = None,
    alike: bool = True,
    grown: str = "",
) -> str | None:
    """The request (core/slurm/gres.gpu_request) for the waiting tasks; None: it stays.

    ``peaks_mib``: measured peaks of the decision's tasks so far, the ended one's last;
    ``lasting_mib``: those of them that ran long enough to have reached theirs (None: all). After a
    GPU out-of-memory the waiting tasks get its recovery's request (``grown``), also those for a MIG
    device; "" where others caused it. After a peak above the share they get what the peak needs;
    after enough small ones of tasks that lasted, which agree, they get less, where the tasks are
    ``alike``.
    """
    if outcome is Outcome.OOM_GPU:
        return grown or None
    if outcome is not Outcome.COMPLETED or not peaks_mib or not share.shards:
        return None
    needed = max(share.least, -(-int(max(peaks_mib) * HEADROOM) // share.shard_mib))
    if needed > share.per_gpu:
        return share.whole or None
    grows = max(peaks_mib) > share.shards * share.shard_mib
    lasting = peaks_mib if lasting_mib is None else lasting_mib
    agree = len(lasting) >= PEAKS and max(lasting) <= min(lasting) * AGREE
    shrinks = alike and agree and needed <= share.shards * WORTH
    return with_shards(share.tres, max(needed, 1)) if grows or shrinks else None


def waiting(views: Iterable[JobView], decision: str, was: str, goal: str) -> list[Target]:
    """The records to update so that the waiting tasks of ``decision`` that ask for ``was`` ask for
    ``goal``, the largest first.

    Held tasks and tasks that wait for a dependency are included and stay so. Left out: a task whose
    request somebody changed, one without our mark, one that is COMPLETING. ``was`` may be several
    requests with spaces between: the plan may have grown before it was carried out.
    """
    before, wanted = {count_of(one, "shard") for one in was.split()}, count_of(goal, "shard")
    sliced = before == {None} and not same_gres(was, goal)
    found: list[JobView] = []
    for view in views:
        if view.state != "PENDING" or view.completing or view.array_job_id is None:
            continue
        if view.decision != decision:
            continue
        has = count_of(view.tres, "shard")
        changed = has and has in before and has != wanted
        if changed or (sliced and same_gres(view.tres, was)):
            found.append(view)
    return by_record(found)
