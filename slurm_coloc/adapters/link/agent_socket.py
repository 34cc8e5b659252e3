# SPDX-License-Identifier: Apache-2.0
"""The socket of a node's agent for the node's hooks, and the hooks' side of it.

<run_dir>/agent is root's alone (0700), and the kernel tells each side who the other one is. One
request a connection:

    hook    {"v":1,"within_ms":N,"request":{...}}        as it would go to colocd
    agent   {"v":1,"taken":true}                         at once, where it passes the request on
    agent   {"v":1,"from":"HOST:PORT","answer":{...}}    colocd's answer and where that is
    agent   {"v":1,"error":{"code","message"}}           instead of either: it has no answer

Hooks go their own way after an error, and where a line does not come in its part of their time.
Paths go through the folder's descriptor: it cannot be exchanged in between, nor be too long for a
socket's address.
"""

import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.link import frames
from slurm_coloc.adapters.link.client import Answer, Wire, served_by
from slurm_coloc.errors import DaemonUnreachable

FOLDER, NAME = "agent", "hooks.sock"
FOLDER_MODE = 0o700

# Parts of the hook's own time: the rest is for its own way to colocd.
TAKEN_PART, TAKEN_MOST_S = 0.2, 0.25
ANSWER_PART, OWN_WAY_S = 0.6, 0.5


def trusted() -> frozenset[int]:
    """The uids that agent and hooks may run as: root, or who runs this process."""
    return frozenset({0, os.geteuid()})


@contextlib.contextmanager
def open_folder(run_dir: Path) -> Iterator[int]:
    """A descriptor of the folder; raises OSError where it is missing or not root's alone."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(run_dir / FOLDER, flags)
    try:
        status = os.fstat(fd)
        if status.st_uid not in trusted() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(f"{run_dir / FOLDER}: not root's alone")
        yield fd
    finally:
        os.close(fd)


def address_in(fd: int, name: str = NAME) -> str:
    """The path of a socket in the folder, as long as the descriptor is open."""
    return f"/proc/self/fd/{fd}/{name}"


class AgentWire(Wire):
    """A connection to the agent; good for one request."""

    def __init__(self, run_dir: Path, deadline_s: float) -> None:
        """Connect. ``deadline_s``: all the time that the hook has, its own way included. Raises
        FileNotFoundError where no agent has made a socket, else DaemonUnreachable."""
        self._begin, self._all_s = time.monotonic(), deadline_s
        super().__init__("agent", min(deadline_s * TAKEN_PART, TAKEN_MOST_S))
        try:
            with open_folder(run_dir) as fd:
                self._connect(socket.AF_UNIX, address_in(fd), deadline_s)
            uid = served_by(self._sock)
        except FileNotFoundError:
            self.close()
            raise
        except OSError as err:
            self.close()
            raise DaemonUnreachable(f"agent: {err.strerror or err}") from err
        if uid not in trusted():
            self.close()
            raise DaemonUnreachable(f"agent: its socket is served by uid {uid}, not by root")

    def exchange(self, text: bytes) -> Answer:
        """Have colocd asked; its answer. ``where`` says from then on who that was. Raises
        DaemonUnreachable where the agent has none to give."""
        answer_s = max(self._all_s * ANSWER_PART, self._all_s - OWN_WAY_S)
        try:
            self._limit()
            within_ms = int(answer_s * 1000)
            self._sock.sendall(b'{"v":1,"within_ms":%d,"request":%s}\n' % (within_ms, text))
            if self._read(frames.MAX_HELLO).get("taken") is not True:
                raise frames.ProtocolError("it does not say that it has taken the request")
            self._limit_s, self._end = answer_s, self._begin + answer_s
            found = self._read(frames.MAX_ANSWER)
        except TimeoutError:
            raise DaemonUnreachable(f"agent: no answer within {self._limit_s:.2f} s") from None
        except (OSError, frames.ProtocolError) as err:
            raise DaemonUnreachable(f"agent: {getattr(err, 'message', err)}") from err
        answer = found.get("answer")
        if not isinstance(answer, dict):
            raise DaemonUnreachable("agent: an answer without colocd's")
        self.where = f"{str(found.get('from'))[:100]} via agent"
        return answer

    def _read(self, most: int) -> dict[str, Any]:
        """A line of the agent's; raises DaemonUnreachable for an error that it tells."""
        found = frames.read_answer(self._line(most))
        error = found.get("error")
        if isinstance(error, dict):
            raise DaemonUnreachable(f"agent: {str(error.get('message'))[:200]}")
        return found
