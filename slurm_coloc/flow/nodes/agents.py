# SPDX-License-Identifier: Apache-2.0
"""What nodes say over the network: who may speak for which node and job, and when each was heard.

A node speaks only for itself: root or SlurmUser there (by MUNGE), from an address that is its own
in Slurm's eyes, about a run that Slurm says was there. Several slurmds on a host share an address.
"""

import time
from collections.abc import Callable, Collection
from typing import Any

import structlog

from slurm_coloc.adapters.link.address import Names, is_own, plain
from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.hosts import in_nodes
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.flow.cluster.telemetry import Live

log = structlog.get_logger()

SILENT_S = 60.0  # an agent says something every 20 s
# A run's end is known when its job is COMPLETING no more: then its Epilog is over, or was lost with
# its slurmd. So much later no orphan of that slurmd is at work either.
GONE_S = 60.0
# squeue's column of a run's nodes: a longer list is cut there.
CUT = 255


class Nodes:
    """The nodes of one cluster as colocd hears them."""

    def __init__(
        self, shape: Callable[[], ClusterShape | None], trusted: Collection[int], store: Store
    ) -> None:
        self._shape = shape
        self._trusted = trusted
        self._store = store
        self._names = Names()
        self._heard: dict[str, dict[str, Any]] = {}
        self.live = Live(store)

    async def speaker(self, peer: Peer) -> str:
        """The node that a remote peer is. Raises UsageFault ``not-allowed``, or ColocError
        ``not-now`` while the cluster is not known yet."""
        if peer.uid not in self._trusted:
            raise UsageFault(f"uid {peer.uid} may not speak for a node", "not-allowed")
        if peer.node is None:
            raise UsageFault("the hello named no node", "not-allowed")
        shape = self._shape()
        if shape is None:
            raise ColocError("the cluster is not known yet: ask again", "not-now")
        if peer.cluster and shape.name and peer.cluster != shape.name:
            raise UsageFault(f"this is cluster {shape.name}, not {peer.cluster}", "not-allowed")
        node = next((one for one in shape.nodes if one.name == peer.node), None)
        if node is None or not await self._is_at(node, plain(peer.address)):
            log.warning("refused", address=peer.address, node=peer.node, reason="not its address")
            why = "its NodeAddr is another" if node else "Slurm has no such GPU node"
            raise UsageFault(f"{peer.address} is not {peer.node}: {why}", "not-allowed")
        return node.name

    async def _is_at(self, node: NodeShape, address: str) -> bool:
        for name in dict.fromkeys((node.address or node.name, node.hostname)):
            found = await self._names.addresses(name) if name else frozenset()
            # On colocd's own host a connection may leave by another address than it goes to.
            if address in found or (is_own(address) and any(map(is_own, found))):
                return True
        return False

    async def require_run(self, slurm: SlurmClient, job_id: int, restart: int, node: str) -> None:
        """Raise UsageFault ``not-yours`` where this run of the job was not on ``node``; SlurmError
        where that must be asked of a slurmctld that does not answer."""
        for run in self._store.runs.of_job(job_id):
            if run.restart == restart and in_nodes(run.node or "", node):
                return
        view = await slurm.job(job_id)
        if view is not None:
            # A requeue counts at once, while the run before it is still being cleaned up.
            same = view.restarts == restart or (view.completing and view.restarts == restart + 1)
            cut = len(view.nodes) >= CUT
            if same and (in_nodes(view.nodes, node) or view.batch_host == node or cut):
                return
        log.warning("refused", jobid=job_id, restart=restart, node=node, reason="not its job")
        raise UsageFault(f"job {job_id}, restart {restart}: was not on {node}", "not-yours")

    def hear(self, node: str | None, peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        """An agent's heartbeat. ``node``: who it was found to be over the network; on this host it
        is root or SlurmUser, who says. The answer: ``gone``, the ids of those of its ``runs`` (id,
        restart, seconds of the Prolog) that ended long ago, so that their Epilog will not come."""
        if node is None:
            shape, name = self._shape(), message.get("node")
            node = next((n.name for n in (shape.nodes if shape else ()) if n.name == name), None)
            if node is None:
                return {}
        spooled = message.get("spooled")
        self._heard[node] = {
            "address": peer.address,
            "version": str(message.get("version", ""))[:32],
            "spooled": spooled if isinstance(spooled, int) else None,
            "last_s": time.time(),
        }
        self.live.take(node, message)
        runs = message.get("runs")
        if not isinstance(runs, list):
            return {}
        return {"gone": [run[0] for run in runs[:64] if self._gone(run)]}

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

    def gpus(self, uid: int | None) -> dict[str, Any]:
        """The GPUs as ``uid`` may see them (None: all)."""
        shape = self._shape()
        private = shape is None or "jobs" in shape.private_data
        return self.live.answer(hide_jobs=uid is not None and private)

    def links(self) -> list[dict[str, Any]]:
        """Each GPU node with what its agent said last; ``last_s`` null: never since the start."""
        shape = self._shape()
        now = time.time()
        silent = {"address": None, "version": None, "spooled": None, "last_s": None}
        found = []
        for node in shape.nodes if shape else ():
            heard = self._heard.get(node.name, silent)
            linked = heard["last_s"] is not None and now - heard["last_s"] < SILENT_S
            found.append({"node": node.name, "linked": linked, **heard})
        return found
