# SPDX-License-Identifier: Apache-2.0
"""The warm process: an interpreter with the estimators loaded that forks a child for each text.

``python -m slurm_coloc.flow.prepare.warm``; standard input is a socket of colocd's. The first
message on it is the setup (JSON), the answer to it READY. Each further message brings a socket: a
child reads a request from it and writes its answer to it, each a line of JSON. How a child ended
that did not answer is written there by this process, which itself reads nothing that users wrote.

A child has one text. What the text breaks or leaves behind is gone with the child, and the next
user waits for nothing, since a fork takes about a millisecond.
"""

import base64
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from slurm_coloc.adapters import confine
from slurm_coloc.estimate.api import registry
from slurm_coloc.estimate.parsers import parse_summary
from slurm_coloc.estimate.request import WARM_UP, Defaults, Given
from slurm_coloc.estimate.variants import prepared
from slurm_coloc.flow.estimators.networks import provide
from slurm_coloc.flow.prepare.limits import MAX_REQUEST, MAX_SETUP, READY, Ended, Limits

CONTROL = 0  # the descriptor of colocd's socket; in a child that of its own
#: processor time at the usual priority; honest texts take 5 to 30 ms
QUICK_S = 0.1
NICE = 10  # after that


@dataclass(slots=True)
class Child:
    """A text that is being estimated: ``fd`` of its process, ``until`` on the monotonic clock."""

    pid: int
    fd: int
    answer: socket.socket
    until: float
    late: bool = False


class Warm:
    """Forks, and waits for children with their limits."""

    def __init__(self, control: socket.socket, defaults: Defaults, limits: Limits) -> None:
        self._control = control
        self._defaults = defaults
        self._limits = limits
        self._memory = confine.address_space() + limits.memory_mib * 2**20
        self._children: dict[int, Child] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> None:
        """Until colocd closes its end. Children that are left end with this process."""
        while True:
            for fd, _ in self._poll.poll(self._wait_ms()):
                if fd in self._children:
                    self._reap(self._children.pop(fd))
                elif not self._take():
                    return
            self._end_late()

    def _wait_ms(self) -> int | None:
        left = [child.until for child in self._children.values() if not child.late]
        if not left:
            return None
        return max(0, int(1000 * (min(left) - time.monotonic()))) + 1

    def _take(self) -> bool:
        """A new text; False where colocd has closed its end."""
        message, fds, _, _ = socket.recv_fds(self._control, 16, 1)
        if not message:
            return False
        for fd in fds:
            answer = socket.socket(fileno=fd)
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _live(parent, answer, self._defaults, self._limits, self._memory)
            child = Child(pid, os.pidfd_open(pid), answer, time.monotonic() + self._limits.wall_s)
            self._children[child.fd] = child
            self._poll.register(child.fd, select.POLLIN)
        return True

    def _reap(self, child: Child) -> None:
        self._poll.unregister(child.fd)
        os.close(child.fd)
        status = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if status != 0:
            _write(child.answer, {"ended": _how(status, child), "status": f"status {status}"})
        child.answer.close()

    def _end_late(self) -> None:
        now = time.monotonic()
        for child in self._children.values():
            if not child.late and child.until <= now:
                child.late = True
                signal.pidfd_send_signal(child.fd, signal.SIGKILL)


def _how(status: int, child: Child) -> Ended:
    if -status in (signal.SIGPROF, signal.SIGXCPU):
        return Ended.CPU
    if child.late:
        return Ended.WALL
    # SIGKILL by anybody else: memory of the machine ran out
    return Ended.AWAY if -status == signal.SIGKILL else Ended.CRASH


def _write(answer: socket.socket, what: dict[str, object]) -> None:
    """One line, to somebody who may no longer read."""
    with contextlib.suppress(OSError):
        answer.sendall(json.dumps(what).encode() + b"\n")


def _live(
    parent: int, answer: socket.socket, defaults: Defaults, limits: Limits, memory: int
) -> NoReturn:
    """A child's whole life."""
    status = 1
    try:
        confine.end_with(parent)
        os.dup2(answer.fileno(), CONTROL)
        _close_all_but(CONTROL, 1, 2)  # colocd's socket, and those of other users' texts
        own = socket.socket(fileno=CONTROL)
        request = json.loads(_line(own))
        confine.confine(limits.cpu_s, memory)
        confine.yield_after(QUICK_S, NICE)
        _write(own, _answer(request["packed"], Given(**request["given"]), defaults))
        status = 0
    finally:
        os._exit(status)


def _answer(packed: str, given: Given, defaults: Defaults) -> dict[str, object]:
    try:
        return {"prepared": prepared(packed, given, defaults).as_json()}
    except MemoryError:
        return {"ended": Ended.MEMORY}
    except Exception as err:  # a defect of an estimator must be told, not what the text holds
        where = traceback.extract_tb(err.__traceback__)[-1]
        text = f"{type(err).__name__} in {Path(where.filename).name}:{where.lineno}"
        return {"ended": Ended.CRASH, "status": text}


def _close_all_but(*needed: int) -> None:
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd not in needed:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(fd)


def _line(own: socket.socket) -> bytes:
    parts: list[bytes] = []
    length = 0
    while (part := own.recv(65536)) and length <= MAX_REQUEST:
        parts.append(part)
        length += len(part)
        if part.endswith(b"\n"):
            break
    return b"".join(parts)


def warm_up(defaults: Defaults) -> str:
    """Load what the first text would load; why that text has no estimate, if so. A network is
    loaded by each child that needs it: its threads would not come through a fork."""
    provide()
    if getattr(registry().get(defaults.estimator), "runs_network", False):
        parse_summary(WARM_UP)
        return ""
    packed = base64.b64encode(zlib.compress(WARM_UP.encode())).decode()
    found = prepared(packed, Given(batch_size=2), defaults).of("", "", 1)
    return "" if found.estimate else found.detail or str(found.no_estimate)


def main() -> int:
    """Set up by colocd's first message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's: colocd ends this process
    confine.end_with(int(sys.argv[1]))
    confine.no_new_privileges()
    confine.first_to_be_killed()
    control = socket.socket(fileno=CONTROL)
    setup = json.loads(control.recv(MAX_SETUP))
    defaults, limits = Defaults.read(setup["defaults"]), Limits(**setup["limits"])
    warning = warm_up(defaults)
    gc.freeze()  # what is loaded is looked at by no child, so that its pages stay shared
    control.sendall(READY + warning.encode())
    Warm(control, defaults, limits).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
