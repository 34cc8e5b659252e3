# SPDX-License-Identifier: Apache-2.0
"""The nodes' messages over the network: who may speak for which node and job, and when each was
last heard.

A node speaks only for itself: as root or SlurmUser there (by MUNGE), from an address that Slurm
knows as its own, about a run that Slurm says was there. Several slurmds on a host share an address.
"""

import time
from collections.abc import Callable, Collection
from typing import Any

import structlog

from slurm_coloc.adapters.link.address import Names, is_own, plain
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.flow.cluster.telemetry import Live
from slurm_coloc.flow.nodes import observed
from slurm_coloc.flow.nodes.job_questions import JobQuestions
from slurm_coloc.flow.nodes.late_promise import late_promises
from slurm_coloc.flow.nodes.node_setup import read_setup

log = structlog.get_logger()

SILENT_S = 60.0  # an agent says something every 20 s
# A run has ended for certain when its job is no longer COMPLETING: its Epilog is over, or was lost
# with its slurmd. After so many seconds more no process of that slurmd is left.
GONE_S = 60.0
# Characters of squeue's column of a run's nodes: a longer list is cut.
CUT = 255


class Nodes:
    def __init__(
        self, shape: Callable[[], ClusterShape | None], trusted: Collection[int], store: Store
    ) -> None:
        self._shape = shape
        self._trusted = trusted
        self._store = store
        self._names = Names()
        self._named: tuple[ClusterShape | None, dict[str, NodeShape]] = (None, {})
        self._heard: dict[str, dict[str, Any]] = {}
        self.live = Live(store)

    async def speaker(self, peer: Peer) -> str:
        """The node that a remote peer speaks for. Raises UsageFault ``not-allowed``, or ColocError
        ``not-now`` while the cluster is not known yet."""
        if peer.uid not in self._trusted:
            raise UsageFault(f"uid {peer.uid} may not speak for a node", "not-allowed")
        if peer.node is None:
            raise UsageFault("the hello named no node", "not-allowed")
        shape = self._shape()
        if shape is None:
            raise ColocError("the cluster is not known yet: try again", "not-now")
        if peer.cluster and shape.name and peer.cluster != shape.name:
            raise UsageFault(f"this is cluster {shape.name}, not {peer.cluster}", "not-allowed")
        node = self._node(shape, peer.node)
        if node is None or not await self._is_at(node, plain(peer.address)):
            log.warning("refused", address=peer.address, node=peer.node, reason="not its address")
            why = "its NodeAddr is another" if node else "Slurm has no such GPU node"
            raise UsageFault(f"{peer.address} is not {peer.node}: {why}", "not-allowed")
        return node.name

    def _node(self, shape: ClusterShape, name: str) -> NodeShape | None:
        """The GPU node of that name; ten thousand of them ask each 20 seconds."""
        if self._named[0] is not shape:
            self._named = shape, {one.name: one for one in shape.nodes}
        return self._named[1].get(name)

    async def _is_at(self, node: NodeShape, address: str) -> bool:
        for name in dict.fromkeys((node.address or node.name, node.hostname)):
            found = await self._names.addresses(name) if name else frozenset()
            # A connection of colocd's own host may have another source address than its target.
            if address in found or (is_own(address) and any(map(is_own, found))):
                return True
        return False

    async def require_run(
        self, questions: JobQuestions, job_id: int, restart: int, node: str
    ) -> JobView | None:
        """Raise UsageFault ``not-yours`` where this run of the job was not on ``node``; SlurmError
        where only slurmctld can tell and does not answer. Returns the job where it was asked."""
        for run in self._store.runs.of_job(job_id):
            if run.restart == restart and in_nodes(run.node or "", node):
                return None
        view = await questions.job(job_id)
        if view is not None:
            # A requeue raises the restart count while the run before it is still COMPLETING.
            same = view.restarts == restart or (view.completing and view.restarts == restart + 1)
            cut = len(view.nodes) >= CUT
            if same and (in_nodes(view.nodes, node) or view.batch_host == node or cut):
                return view
        log.warning("refused", jobid=job_id, restart=restart, node=node, reason="not its job")
        raise UsageFault(f"job {job_id}, restart {restart}: was not on {node}", "not-yours")

    def hear(self, node: str | None, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        """Take an agent's heartbeat. ``node``: by its connection; None on this host, where root or
        SlurmUser names the node. ``gone`` in the answer: ids of those of its ``runs`` (id, restart,
        seconds of the Prolog) that ended so long ago that no Epilog will come. ``private``: whether
        PrivateData hides whose jobs run. ``promises``: of the runs ``without`` one."""
        if node is None:
            shape, name = self._shape(), message.get("node")
            if shape is None or not isinstance(name, str) or self._node(shape, name) is None:
                return {}
            node = name
        spooled = message.get("spooled")
        self._heard[node] = {
            "address": peer.address,
            "version": str(message.get("version", ""))[:32],
            "spooled": spooled if isinstance(spooled, int) else None,
            "last_s": time.time(),
            "setup": read_setup(message.get("setup")),
        }
        self.live.take(node, message)
        observed.take(self._store, node, message.get("observed"))
        shape, runs = self._shape(), message.get("runs")
        answer: dict[str, Any] = {"private": shape is None or shape.hides_owners}
        if isinstance(runs, list):
            answer["gone"] = [run[0] for run in runs[:64] if self._gone(run)]
        if promises := late_promises(self._store, node, message.get("without")):
            answer["promises"] = promises
        return answer

    def _gone(self, run: object) -> bool:
        match run:
            case [int(job_id), int(restart), int() | float() as began_s]:
                now = time.time()
                return any(
                    one.restart == restart
                    and one.outcome
                    and began_s < (one.end_s or 0.0) < now - GONE_S
                    for one in self._store.runs.of_job(job_id)
                )
        return False

    def links(self) -> list[dict[str, Any]]:
        """Each GPU node with the last message of its agent; ``last_s`` null: none so far."""
        shape = self._shape()
        now = time.time()
        silent = {"address": None, "version": None, "spooled": None, "last_s": None, "setup": None}
        found = []
        for node in shape.nodes if shape else ():
            heard = self._heard.get(node.name, silent)
            linked = heard["last_s"] is not None and now - heard["last_s"] < SILENT_S
            found.append({"node": node.name, "linked": linked, **heard})
        return found
