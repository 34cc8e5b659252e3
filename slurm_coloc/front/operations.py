# SPDX-License-Identifier: Apache-2.0
"""What can be asked of colocd from outside: each op, who may ask it, and what answers it.

To add an op, add its line to ``operations``. A handler gets the peer and the message, whose fields
nobody has looked at, and returns the answer's fields or raises ColocError. It may ``await
site.main.call(op, deadline_s, **fields)`` for what only the main process knows or may write
(daemon/for_front.py answers that), and ``await site.read(function, *values)`` for what is in the
history: ``function(store, *values)`` runs beside the event loop. It must hold neither loop.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass

from slurm_coloc.adapters.server import Message
from slurm_coloc.core.peer import Peer
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.flow.queries.dispatch import Queries
from slurm_coloc.flow.queries.site import Site
from slurm_coloc.front.pace import QUESTIONS, REPORTS, TICKETS, Pace
from slurm_coloc.front.tickets import Tickets

RELAY_S = 25.0  # an Epilog's report and a Prolog's launch may wait for slurmctld
PING_S = 5.0


@dataclass(frozen=True, slots=True)
class Operation:
    """``trusted``: for root and SlurmUser only. ``here``: from this host only, not by TCP.
    ``standby``: also where the colocd of another controller is the active one. ``pace``: how often
    an ordinary user may ask it; ops of one pace count together. ``short``: its answer is."""

    handle: Callable[[Peer, Message], Awaitable[Message]]
    trusted: bool = False
    here: bool = False
    standby: bool = False
    pace: Pace = QUESTIONS
    short: bool = False


def operations(site: Site, tickets: Tickets) -> dict[str, Operation]:
    """Every op by its name."""
    queries = Queries(site)

    async def relay(peer: Peer, message: Message) -> Message:
        """Have the main process answer it; the peer is who this process has seen."""
        return await site.main.call("relay", RELAY_S, peer=asdict(peer), message=message)

    async def ping(peer: Peer, message: Message) -> Message:
        """Whether both processes answer."""
        root = asdict(Peer(uid=0))
        return await site.main.call("relay", PING_S, peer=root, message={"op": "ping"})

    return {
        "jobs": Operation(queries.jobs),
        "gpus": Operation(queries.gpus),
        "history": Operation(queries.history),
        "usage": Operation(queries.usage),
        "past": Operation(queries.past, pace=REPORTS),
        "mine": Operation(queries.mine, pace=REPORTS),
        "explain": Operation(queries.explain),
        "observed": Operation(queries.observed, trusted=True),
        "status": Operation(queries.status, standby=True),
        "ping": Operation(ping, standby=True),
        # of the SPANK plugin in sbatch, salloc and srun
        "ticket": Operation(tickets.give, pace=TICKETS, short=True),
        # of nodes: Prolog, Epilog, agent
        "launch": Operation(relay, trusted=True),
        "report": Operation(relay, trusted=True),
        "beat": Operation(relay, trusted=True),
        # of the admin
        "reload": Operation(relay, trusted=True, here=True, standby=True),
        # of a job_submit.lua that still names this socket and not the hook's own
        "submit": Operation(relay, trusted=True, here=True, standby=True),
    }


def allowed(table: dict[str, Operation], site: Site, peer: Peer, op: object) -> Operation:
    """The operation that a peer asks for; raises ColocError where it may not."""
    found = table.get(op) if isinstance(op, str) else None
    if found is None:
        raise UsageFault(f"unknown op {str(op)[:40]!r}", "bad-request")
    if found.trusted and peer.uid not in site.trusted:
        raise UsageFault(f"{op}: uid {peer.uid} may not ask this", "not-allowed")
    if found.here and peer.remote:
        raise UsageFault(f"{op}: not over the network", "not-allowed")
    if site.standby and not found.standby:
        raise ColocError("the colocd of another controller is the active one", "standby")
    return found
