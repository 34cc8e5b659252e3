# SPDX-License-Identifier: Apache-2.0
"""The tasks of an array that still wait, after one of them has ended: what they should ask for.

The tasks of an array share one decision and are alike as far as anybody knows: what one ran into,
the others would run into. Tasks that run are left alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.gres import count_of, same_gres, with_shards
from slurm_coloc.core.slurm.job import JobView, Target, by_record

# A share made smaller leaves this much above the largest measured peak, follows at least so many
# measured tasks that agree (in a sweep over batch sizes they do not, and the next may be the large
# one), and must be worth it: a quarter of the shards.
HEADROOM = 1.15
PEAKS = 3
AGREE = 1.05
WORTH = 0.75


@dataclass(frozen=True, slots=True)
class Share:
    """What a task had: ``tres`` with ``shards`` of ``shard_mib`` each, of ``per_gpu`` that one GPU
    has; ``whole`` is the request of the same task on a whole GPU, "" where that is not known.
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
    alike: bool = True,
    grown: str = "",
) -> str | None:
    """The request (core/slurm/gres.gpu_request) for the tasks that wait, or None: it stays.

    ``peaks_mib``: measured peaks of the decision's tasks so far, this one's last. After a GPU
    out-of-memory they get what its recovery gives (``grown``), also where they wait for a MIG
    device, "" where it was not its own doing; after a peak above the share what the peak needs;
    after enough small peaks that agree less, where the tasks are ``alike`` (have one summary).
    """
    if outcome is Outcome.OOM_GPU:
        return grown or None
    if outcome is not Outcome.COMPLETED or not peaks_mib or not share.shards:
        return None
    needed = max(share.least, -(-int(max(peaks_mib) * HEADROOM) // share.shard_mib))
    if needed > share.per_gpu:
        return share.whole or None
    grows = max(peaks_mib) > share.shards * share.shard_mib
    agree = max(peaks_mib) <= min(peaks_mib) * AGREE
    shrinks = alike and agree and len(peaks_mib) >= PEAKS and needed <= share.shards * WORTH
    return with_shards(share.tres, max(needed, 1)) if grows or shrinks else None


def waiting(views: Iterable[JobView], decision: str, was: str, goal: str) -> list[Target]:
    """What to update so that the waiting tasks of ``decision`` that ask for ``was`` ask for
    ``goal``, the largest record first.

    Held and dependency-waiting tasks are among them and stay held or waiting. Left alone: a task
    whose request somebody changed, one without our mark, one that is COMPLETING. ``was`` may be
    several requests with spaces between: what was planned grew before it was done.
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
