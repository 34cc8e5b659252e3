# SPDX-License-Identifier: Apache-2.0
"""What colocd's main process answers its front: relayed requests, and what only it knows.

Requests of nodes and admins are handled as they come. What people's questions need comes after: few
at once and so many a second, whatever the number of users, because slurmctld's hook waits for this
process. A question that is refused here is answered in the front from what is in the history.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.rates import Rate, Rates
from slurm_coloc.core.slurm.pending import base_reason
from slurm_coloc.core.slurm.qos_limits import NO_LIMITS, limit_owners, limits_behind
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.daemon.requests import Requests
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.estimate.request import Given
from slurm_coloc.flow.submit.tickets import Key

Answer = dict[str, Any]

# Of all users together, who are one uid here.
PEOPLE, ALL = Rate(50.0, 100.0), 0
QUESTIONS = 4  # of people's that are under way at one time


class ForFront:
    """The handler of the channel's end in the main process."""

    def __init__(self, parts: Parts, requests: Requests) -> None:
        self._parts, self._requests = parts, requests
        self._rate = Rates(PEOPLE)
        self._places = asyncio.Semaphore(QUESTIONS)

    async def answer(self, op: str, fields: Answer) -> Answer:
        """Answer one call of the front; raises ColocError."""
        if op == "relay":
            return await self._requests.handle(Peer(**fields["peer"]), fields["message"])
        if op == "ticket":
            return self._ticket(**fields)
        questions: dict[str, Callable[..., Awaitable[Answer]]] = {
            "freshen": self._freshen,
            "poll": self._poll,
            "limits": self._limits,
            "status": self._status,
            "metrics": self._metrics,
        }
        question = questions.get(op)
        if question is None:
            raise UsageFault(f"unknown op {op[:40]!r}", "bad-request")
        if self._rate.take(ALL, time.monotonic()):
            raise ColocError("busy: too many questions of all users; ask again", "busy")
        async with self._places:
            return await question(**fields)

    def _ticket(
        self,
        uid: int,
        text: str,
        given: Answer,
        basis: str,
        prepared: Answer | None = None,
    ) -> Answer:
        """A ticket for the estimates of a text, {} where they are not known yet. ``text``: its
        hash; ``basis``: what the front's estimates follow from."""
        texts, key = self._parts.texts, Key(text, Given(**given))
        made = texts.known(key)
        if prepared is not None:
            made = Prepared.read(prepared)
            if not texts.learn(uid, key, made, basis):
                raise ColocError("the configuration has just changed; ask again", "busy")
        return {} if made is None else {"ticket": texts.give(uid, key, made)}

    def state(self) -> Answer:
        """What the front must know at any time; it is sent whenever it has changed."""
        shape = self._parts.cluster.shape
        return {"standby": self._parts.standby, "private": shape is None or shape.hides_jobs}

    async def _freshen(self, uid: int) -> Answer:
        """Look in Slurm for the jobs of a user whose submission has not been seen yet."""
        await self._parts.watcher.freshen(uid)
        return {}

    async def _poll(self, job_id: int, uid: int, trusted: bool) -> Answer:
        """Look in Slurm for one job that a user asks about."""
        await self._parts.watcher.poll(job_id, uid, trusted=trusted)
        return {}

    async def _limits(
        self, uid: int, account: str, qos: str, partition: str, reason: str
    ) -> Answer:
        """The limits that may cause the reason for which a job waits, as last read."""
        shape, known = self._parts.cluster.shape, self._parts.limits_known
        limits = self._parts.limits if known else NO_LIMITS
        asked = JobRequest(uid, account=account, qos=qos or None)
        lines: dict[str, None] = {}  # in order, each once
        if shape is not None:
            for name in partition.split(","):
                holders = limit_owners(asked, name, shape, limits)
                lines |= dict.fromkeys(limits_behind(base_reason(reason), holders))
        return {"limits": list(lines)}

    async def _metrics(self) -> Answer:
        """The cluster in numbers, each node's link, and the times of the answers to submissions."""
        status = await self._status(trusted=True)
        return {**status, "submissions": self._requests.submissions.plain()}

    async def _status(self, trusted: bool) -> Answer:
        """The cluster in numbers; for root and SlurmUser (``trusted``) also each node's link."""
        parts, shape = self._parts, self._parts.cluster.shape
        nodes = shape.nodes if shape else ()
        links = parts.nodes.links() if parts.config.network.listen or trusted else []
        return {
            "mode": "off" if parts.switched_off else parts.config.mode.default,
            "role": str(parts.role.part),
            "seen_s": parts.cluster.at_s,
            "cluster": shape.name if shape else None,
            "slurm": ".".join(map(str, shape.release)) if shape else None,
            "gpu_nodes": len(nodes),
            "gpus": sum(node.gpus for node in nodes),
            "shards": sum(node.shards for node in nodes),
            "linked_nodes": sum(link["linked"] for link in links),
            **({"links": links} if trusted else {}),
        }
