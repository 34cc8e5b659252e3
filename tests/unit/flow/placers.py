# SPDX-License-Identifier: Apache-2.0
"""A queue, two nodes and stage place upon them, for the tests of placing. slurmctld is a stand-in
that refuses on demand; on real daemons: tests/cluster/test_steered.py."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import parse_config
from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.binding import Gpu, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS, SiteLimits
from slurm_coloc.errors import SlurmError
from slurm_coloc.flow.cluster.context import Context, ShareRequest
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.place.node_gate import NodeGate
from slurm_coloc.flow.place.pins import Placer
from slurm_coloc.flow.place.placement import Placement

ID = "0123456789ab"
MARK = f"coloc:1:{ID}:collocate:fits:12"
KINDS = ("a100-0", "a100-1")
NODE = NodeShape("n1", ("gpu",), ("a100",), "a100", 2, 78, cpus=32, devices=KINDS)
SHAPE = ClusterShape("c", (24, 11, 5), (NODE, replace(NODE, name="n2")))
AGES = replace(SHAPE, age_counts=True, constraints=True)
USE = NodeUse("n1", ("gpu",), True, 32, 0, 128_000, 0, "a100", (Gpu(0, 39), Gpu(0, 39)),
              devices=KINDS)  # fmt: skip
JOB = Queued(
    7, "7", "PENDING", 1000, 1000, reason="Resources", partition="gpu",
    tres_per_node="gres/shard:12", admin_comment=MARK, limit_s=3600.0,
)  # fmt: skip
PINNED = replace(JOB, tres_per_node="gres/shard:a100-1:12", req_nodes="n1")
Update = dict[str, str | int]


class Slurm:
    """A queue; ``refuse``: words for each update."""

    def __init__(self, *jobs: Queued, refuse: str = "") -> None:
        self.jobs, self.refuse = list(jobs), refuse
        self.uses = [USE, replace(USE, name="n2")]
        self.updates: list[tuple[str, Update]] = []
        self.extras: dict[str, str] = {}

    async def extra(self, handle: str) -> str:
        return self.extras.get(handle, "")

    async def node_extra(self, node: str) -> str:
        return next(use.extra for use in self.uses if use.name == node)

    async def set_node_extra(self, node: str, text: str) -> None:
        self.uses = [replace(use, extra=text) if use.name == node else use for use in self.uses]

    async def usage(self) -> tuple[NodeUse, ...]:
        return tuple(self.uses)

    async def queue(self) -> list[Queued]:
        return self.jobs

    async def update(self, handle: str, **fields: str | int) -> None:
        if self.refuse:
            raise SlurmError(self.refuse, "slurm-refused")
        self.updates.append((handle, fields))
        if "Extra" in fields:
            self.extras[handle] = str(fields["Extra"])


def beat(live: Live, *nodes: str, free_mib: int = 39000) -> None:
    for node in nodes:
        gpus = [
            {"uuid": f"GPU-{node}{minor}", "index": minor, "minor": minor, "total_mib": 40536,
             "free_mib": free_mib, "smact": 0.1}
            for minor in range(2)
        ]  # fmt: skip
        live.take(node, {"gpus": gpus})


def around(
    store: Store, slurm: Slurm, tmp_path: Path, shape: ClusterShape, limits: SiteLimits, place: Any
) -> Context:
    sharing = {"with": place.pop("share_with", "anyone")}
    settings = {
        "placement": {"mode": "steered", **place},
        "sharing": sharing,
        "daemon": {"state_dir": str(tmp_path)},
    }
    live = Live(store)
    beat(live, "n1", "n2")
    return Context(
        parse_config(settings, "test"), store, slurm, live, lambda: False, lambda: shape,  # type: ignore[arg-type]
        lambda: limits,
    )  # fmt: skip


def placer(
    store: Store, slurm: Slurm, tmp_path: Path, limits: SiteLimits = NO_LIMITS, **place: Any
) -> Placer:
    found = around(store, slurm, tmp_path, SHAPE, limits, place)
    return Placer(found, NodeGate(found))


def placement(
    store: Store, slurm: Slurm, tmp_path: Path, shape: ClusterShape = AGES, **place: Any
) -> Placement:
    """Where age counts, and Extra is a constraint."""
    return Placement(around(store, slurm, tmp_path, shape, NO_LIMITS, place))


def run(one: Placer | Placement, rounds: int = 1) -> None:
    async def go() -> None:
        for _ in range(rounds):
            await one.round()
        await asyncio.gather(*(one if isinstance(one, Placer) else one._placer)._recording.writes)

    asyncio.run(go())


def crowded(slurm: Slurm) -> None:
    """Somebody is on every GPU: the gate counts."""
    slurm.uses = [replace(use, gpus=(Gpu(5, 39), Gpu(5, 39))) for use in slurm.uses]


REQUEST = JobRequest(1000, partition="gpu", tres_per_node="gres/gpu:1")
SHARE = Decision(Action.COLLOCATE, Reason.FITS, 12, None, 39)
CHANGE = Rewrite({"tres_per_node": "gres/shard:12", "tres_per_job": ""})


def submitted(one: Placer, *requests: JobRequest, change: Rewrite = CHANGE) -> list[dict[str, Any]]:
    """The fields of these submissions, after a round. ``change``: of each as a share."""

    async def go() -> list[dict[str, Any]]:
        await one.round()
        found = [
            dict(one.submitting.change(ShareRequest(ID, asks, SHARE, 0.2, change)).fields)
            for asks in requests
        ]
        await asyncio.gather(*one._recording.writes)
        return found

    return asyncio.run(go())
