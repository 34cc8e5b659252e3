# SPDX-License-Identifier: Apache-2.0
"""A decision read from slurmdbd's AdminComment alone, and who may ask how often."""

import asyncio
from dataclasses import replace

import pytest

from slurm_coloc.core.slurm.job import EndedJob, mark_in
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.queries.slurmdbd import Accounted, answer_of

MARK = "coloc:1:0123456789ab:collocate:fits:8"
FIRST = EndedJob(
    7, "REQUEUED", uid=2001, tres="billing=8,gres/shard=8", admin_comment=MARK, submit_s=1.0
)
SECOND = EndedJob(
    7, "COMPLETED", restarts=1, uid=2001, tres="gres/gpu=1", admin_comment=MARK, submit_s=2.0
)


class Dbd:
    """The one call that is made of Slurm."""

    def __init__(self, *runs: EndedJob, away: bool = False) -> None:
        self.runs, self.away, self.calls = list(runs), away, 0

    async def accounted(self, job_id: int) -> list[EndedJob]:
        self.calls += 1
        if self.away:
            raise SlurmError("slurmdbd is away", "no-accounting")
        return self.runs


def test_the_mark_tells_decision_and_runs() -> None:
    answer = answer_of([FIRST, SECOND], 7)
    assert answer is not None
    decision = answer["decision"]
    assert (decision["id"], decision["shards"]) == ("0123456789ab", 8)
    assert decision["why"] == "the estimate fits beside other jobs"
    assert [(run["restart"], run["state"]) for run in answer["runs"]] == [
        (0, "REQUEUED"),
        (1, "COMPLETED"),
    ]


def test_another_job_of_the_same_id_is_left_out() -> None:
    other = EndedJob(7, "FAILED", admin_comment=MARK.replace("0123", "ffff"), submit_s=0.5)
    answer = answer_of([other, FIRST, SECOND], 7)
    assert answer is not None and len(answer["runs"]) == 2


def test_a_reason_of_a_newer_release_is_shown_as_it_stands() -> None:
    new = EndedJob(7, "COMPLETED", admin_comment=MARK.replace("fits", "moon-phase"))
    answer = answer_of([new], 7)
    assert answer is not None and answer["decision"]["why"] == "moon-phase"


def test_a_job_without_mark_is_not_ours() -> None:
    assert answer_of([EndedJob(7, "COMPLETED", admin_comment="a site's own")], 7) is None
    assert answer_of([], 7) is None


JOBSTATS = "JS1:H4sIAAAAAAAC/6tWykvMTVWyUjA0MLasBQC3lKzeDwAAAA=="


def test_jobstats_writes_its_own_over_the_mark_of_some_runs() -> None:
    """At the end of each run: one whose mark is still there tells of all of them."""
    over = replace(FIRST, admin_comment=JOBSTATS)
    for runs in ([over, SECOND], [FIRST, replace(SECOND, admin_comment=JOBSTATS)]):
        answer = answer_of(runs, 7)
        assert answer is not None and answer["decision"]["id"] == "0123456789ab"
        assert [run["restart"] for run in answer["runs"]] == [0, 1]
    assert answer_of([over], 7) is None


def test_a_job_of_before_that_jobstats_wrote_to_is_left_out() -> None:
    """Ids began again: its runs are no runs of this job."""
    before = [
        EndedJob(7, "REQUEUED", uid=2001, admin_comment=JOBSTATS, submit_s=0.1),
        EndedJob(7, "FAILED", restarts=1, uid=2001, admin_comment=JOBSTATS, submit_s=0.2),
    ]
    answer = answer_of([*before, FIRST, SECOND], 7)
    assert answer is not None and len(answer["runs"]) == 2
    others = [*before, replace(FIRST, uid=2002)]
    assert len((answer_of(others, 7) or {})["runs"]) == 1


@pytest.mark.parametrize(
    "comment",
    [f"{MARK}; {JOBSTATS}", f"{JOBSTATS}; {MARK}", f"{JOBSTATS};{MARK}", f"{JOBSTATS} {MARK}",
     f"a site's|{MARK}|{JOBSTATS}", f"{JOBSTATS},{MARK}"],
)  # fmt: skip
def test_an_admin_comment_with_both_parts(comment: str) -> None:
    found = mark_in(comment)
    assert found is not None and (found.decision, found.shards) == ("0123456789ab", 8)
    assert mark_in(f"x{comment.replace(MARK, 'y' + MARK)}") is None


def test_only_the_owner_and_who_is_trusted_see_it() -> None:
    async def ask() -> None:
        accounted = Accounted(Dbd(FIRST, SECOND))  # type: ignore[arg-type]
        assert await accounted.explain(7, 2001, trusted=False)
        assert await accounted.explain(7, 2002, trusted=False) is None
        assert await accounted.explain(7, 0, trusted=True)

    asyncio.run(ask())


def test_a_user_cannot_keep_slurm_busy() -> None:
    async def ask() -> None:
        dbd = Dbd(FIRST)
        accounted = Accounted(dbd)  # type: ignore[arg-type]
        for _ in range(50):
            await accounted.explain(7, 2001, trusted=False)
        assert dbd.calls == 1

    asyncio.run(ask())


def test_without_slurmdbd_the_job_is_unknown() -> None:
    accounted = Accounted(Dbd(away=True))  # type: ignore[arg-type]
    assert asyncio.run(accounted.explain(7, 0, trusted=True)) is None
