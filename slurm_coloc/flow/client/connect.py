# SPDX-License-Identifier: Apache-2.0
"""The way to the active colocd: for hooks the node's agent, which has a link already; else this
host's Unix socket, else each controller in turn.

Of two controllers only the active one's colocd acts; the other says so, and the next is tried.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from slurm_coloc.adapters.link.agent_socket import AgentWire
from slurm_coloc.adapters.link.client import CONNECT_S, Me, NetWire, UnixWire, Wire
from slurm_coloc.errors import DaemonUnreachable

Answer = dict[str, Any]

STANDBY = "standby"


class Ways(NamedTuple):
    """Where colocd may be. ``trusted``: uids that it may run as on this host, () for any.
    ``run_dir``: the hooks' folder, in which the agent's socket is; None for who is no hook."""

    socket: Path
    controllers: tuple[str, ...]
    me: Me
    trusted: frozenset[int] = frozenset()
    run_dir: Path | None = None

    @property
    def any(self) -> bool:
        """Whether there is anybody to ask."""
        return bool(self.controllers) or self.socket.exists()


def error_code(answer: Answer) -> str:
    """The code of a refusal; "" for an answer."""
    if answer.get("ok") is True:
        return ""
    error = answer.get("error")
    return str(error.get("code", "error")) if isinstance(error, dict) else "error"


def reach(ways: Ways, request: bytes, deadline_s: float) -> tuple[Wire, Answer]:
    """Ask the first colocd that answers and is no standby; its answer (``ok`` may be false) and
    the open connection, for more. Raises DaemonUnreachable with every reason."""
    end = time.monotonic() + deadline_s
    why: list[str] = []
    if ways.run_dir is not None:
        wire, found = _through_agent(ways.run_dir, request, deadline_s, why)
        if wire is not None:
            return wire, found
    for own in _wires(ways, end, why):
        try:
            answer = own.exchange(request)
        except DaemonUnreachable as err:
            why.append(err.message)
        else:
            if error_code(answer) != STANDBY:
                return own, answer
            why.append(f"{own.where}: standby")
        own.close()
    raise DaemonUnreachable("; ".join(why) or f"{ways.socket}: nobody is there")


def _through_agent(
    run_dir: Path, request: bytes, deadline_s: float, why: list[str]
) -> tuple[Wire | None, Answer]:
    """The agent's connection and colocd's answer; no connection where it has no answer to give, of
    which ``why`` then tells."""
    try:
        wire = AgentWire(run_dir, deadline_s)
    except FileNotFoundError:
        return None, {}  # no agent runs as root here
    except DaemonUnreachable as err:
        why.append(err.message)
        return None, {}
    try:
        return wire, wire.exchange(request)
    except DaemonUnreachable as err:
        why.append(err.message)
        wire.close()
        return None, {}


def _wires(ways: Ways, end: float, why: list[str]) -> Iterator[Wire]:
    if ways.socket.exists() or not ways.controllers:
        try:
            yield UnixWire(ways.socket, end - time.monotonic(), ways.trusted)
        except DaemonUnreachable as err:
            why.append(err.message)
    for number, target in enumerate(ways.controllers):
        left = end - time.monotonic()
        if left <= 0:
            why.append(f"{target}: no time left")
            return
        # A host that is off gives no answer: those after it need their share of the time.
        share = min(CONNECT_S, left / (len(ways.controllers) - number))
        try:
            wire = NetWire(target, ways.me, left, share)
        except DaemonUnreachable as err:
            why.append(err.message)
            continue
        yield wire
