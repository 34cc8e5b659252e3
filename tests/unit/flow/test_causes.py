# SPDX-License-Identifier: Apache-2.0
"""Why runs were put back, and that one round asks slurmdbd and slurmctld once, whatever it finds.

Real preemptions and node failures are in tests/cluster; five hundred at a time are not."""

import asyncio
from typing import Any, cast

import pytest

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.core.records.runs import EndedRun, Run
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import EndedJob, JobView
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.watch.causes import Causes, _last_events

SHAPE = ClusterShape(
    "c",
    (24, 11, 5),
    tuple(NodeShape(f"g{i}", ("main",), (), "a100", 2, 78, down=i == 2) for i in (1, 2, 3)),
)


class Slurm:
    """What slurmdbd has, or the code of its error, and the nodes; counts the questions."""

    def __init__(self, *ended: EndedJob, error: str = "") -> None:
        self.ended, self.error = ended, error
        self.asked: list[str] = []

    async def accounted(self, *job_ids: int) -> list[EndedJob]:
        self.asked.append("accounted")
        if self.error:
            raise SlurmError("no answer", self.error)
        return [one for one in self.ended if one.job_id in job_ids]

    async def shape(self) -> ClusterShape:
        self.asked.append("shape")
        return SHAPE


def run(job_id: int, node: str | None = "g1", restart: int = 0) -> Run:
    return Run(decision="x", job_id=job_id, restart=restart, uid=1, state="RUNNING", node=node,
               start_s=1.0)  # fmt: skip


def causes(slurm: Slurm, *runs: Run) -> list[Outcome]:
    async def ask() -> list[Outcome]:
        found = Causes(cast(SlurmClient, slurm), [one.job_id for one in runs])
        return [
            await found.of(one, JobView(one.job_id, "PENDING", restarts=one.restart + 1))
            for one in runs
        ]

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("node", "outcome"),
    [
        ("g2", Outcome.NODE_FAIL),
        ("g[1-2]", Outcome.NODE_FAIL),
        ("g1,g[2-3]", Outcome.NODE_FAIL),
        ("g[1,3]", Outcome.REQUEUED),
        ("g20", Outcome.REQUEUED),
        (None, Outcome.REQUEUED),
    ],
)
def test_a_node_of_a_list_that_is_down(node: str, outcome: Outcome) -> None:
    assert causes(Slurm(error="no-accounting"), run(7, node)) == [outcome]


def test_one_round_asks_each_once() -> None:
    slurm = Slurm(EndedJob(1, "PREEMPTED"), EndedJob(2, "NODE_FAIL"), EndedJob(3, "COMPLETED"))
    found = causes(slurm, run(1), run(2), run(3, "g2"), *(run(job) for job in range(4, 400)))
    assert found[:3] == [Outcome.PREEMPTED, Outcome.NODE_FAIL, Outcome.NODE_FAIL]
    assert set(found[3:]) == {Outcome.REQUEUED}
    assert slurm.asked == ["accounted", "shape"]


@pytest.mark.parametrize("code", ["no-accounting", "slurm-timeout"])
def test_a_slurmdbd_that_is_away_is_asked_once(code: str) -> None:
    slurm = Slurm(error=code)
    causes(slurm, *(run(job) for job in range(100)))
    assert slurm.asked.count("accounted") == 1 and slurm.asked.count("shape") <= 1


def test_a_run_that_goes_on_asks_nothing() -> None:
    slurm = Slurm()
    found = Causes(cast(SlurmClient, slurm), [7])
    assert asyncio.run(found.of(run(7), JobView(7, "RUNNING"))) is Outcome.REQUEUED
    assert not slurm.asked


@pytest.mark.parametrize(
    ("text", "kind", "ago_s", "gone_s", "near"),
    [
        ("Xid 79: GPU has fallen off the bus", "xid", 35, 0, True),  # torchrun ends the others
        ("Xid 79: GPU has fallen off the bus", "xid", 500, 0, False),
        ("no SM activity", "idle", 35, 0, False),
        ("the server failed", "mps-fault", 300, 295, True),  # files are copied after the training
    ],
)
def test_what_ended_a_run_may_be_older_than_its_end(
    text: str, kind: str, ago_s: float, gone_s: float, near: bool
) -> None:
    end_s = 10_000.0
    ended = EndedRun(decision="x", job_id=7, restart=0, uid=1, state="FAILED", end_s=end_s,
                     share_mib=0)  # fmt: skip
    use: Any = {"events": [{"at_s": end_s - ago_s, "kind": kind, "text": text}],
                "last": {"at_s": end_s - gone_s}}  # fmt: skip
    assert bool(_last_events(ended, [use])) == near
