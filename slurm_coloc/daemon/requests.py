# SPDX-License-Identifier: Apache-2.0
"""Answers the hook in slurmctld, and what nodes and admins send, in colocd's main process.

The hook comes by its own socket; nodes and admins by the front, which has told users' requests from
theirs and whose word on the peer counts (front/operations.py).
"""

import os
import time
from collections.abc import Callable

from slurm_coloc.adapters.server import Message
from slurm_coloc.core.metrics import catalog
from slurm_coloc.core.metrics.series import Histogram
from slurm_coloc.core.peer import Peer
from slurm_coloc.daemon.ends import Ends
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.flow.cluster.role import Part
from slurm_coloc.flow.cluster.supposed import SupposedShards
from slurm_coloc.flow.nodes import epilog
from slurm_coloc.flow.nodes.prolog import LaunchMessage, launched, read_launch

LOOK_S = 0.14  # of the hook's 0.2, once after slurmctld has read slurm.conf; a decision takes 2 ms
OF_NODES = ("report", "launch", "beat")
NEVER_REMOTE = ("submit", "reload")  # slurmctld's hook and the admin are on this host


class Requests:
    """``reload``: reads the configuration again."""

    def __init__(self, parts: Parts, ends: Ends, reload: Callable[[], None]) -> None:
        self._parts = parts
        self._ends = ends
        self._reload = reload
        self._supposed = SupposedShards()
        self.submissions = Histogram(catalog.SUBMISSION.bounds)  # times to their answers

    async def handle(self, peer: Peer, message: Message) -> Message:
        """Answer one request; raises ColocError."""
        op, parts = message.get("op"), self._parts
        if peer.uid not in parts.trusted:
            raise UsageFault(f"{str(op)[:40]}: uid {peer.uid} may not ask this", "not-allowed")
        if peer.remote and op in NEVER_REMOTE:
            raise UsageFault(f"{op}: not over the network", "not-allowed")
        # The hook is answered also on standby: it runs where slurmctld is in charge.
        if parts.standby and op not in ("submit", "reload", "ping"):
            raise ColocError("the colocd of another controller is the active one", "standby")
        if op in OF_NODES:
            return await self._from_node(peer, str(op), message)
        match op:
            case "submit":
                began_s = time.perf_counter()
                parts.afterwards.before_next()
                loaded_ms = message.get("loaded_monotonic_ms")
                stale = await parts.cluster.is_stale(loaded_ms, LOOK_S)
                shape = self._supposed.shape(parts.config, parts.cluster.shape, parts.nodes.live)
                answer = await parts.decider.submit(message, shape, parts.limits, stale=stale)
                self.submissions.see(time.perf_counter() - began_s)
                return dict(answer)
            case "reload":
                self._reload()
                return {}
            case "ping":
                return {"pid": os.getpid()}
        raise UsageFault(f"unknown op {str(op)[:40]!r}", "bad-request")

    async def _from_node(self, peer: Peer, op: str, message: Message) -> Message:
        """Answer a report, launch or heartbeat. A remote node speaks only for itself; root on this
        host may speak for every node."""
        node, view, parts = None, None, self._parts
        if peer.remote:
            if parts.role.part is Part.UNKNOWN:
                raise ColocError("Slurm has not answered yet: try again", "not-now")
            node = await parts.nodes.speaker(peer)
        if op == "beat":
            return parts.nodes.hear(node, peer, message)
        request = read_launch(message) if op == "launch" else epilog.read(message)
        if node is not None:
            if request.node != node:
                raise UsageFault(f"{node} may not speak for {request.node}", "not-yours")
            if request.restart is None:
                raise UsageFault("report: restart is missing", "bad-request")
            view = await parts.nodes.require_run(
                parts.questions, request.job_id, request.restart, node
            )
        if isinstance(request, LaunchMessage):
            view = view or await parts.questions.job(request.job_id)
            answer = await launched(parts.store, view, parts.watcher.see, parts.gate, request)
            if answer.get("unfit"):
                self._ends.recovering.set()
            return answer
        await self._ends.take(request)
        return {}
