# SPDX-License-Identifier: Apache-2.0
"""A peer of the Lua hook's protocol on a real Unix socket, well- or ill-behaved as told."""

import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Behaviour = Callable[[socket.socket, bytes], None]

GOOD = {
    "v": "1",
    "ok": "1",
    "action": "collocate",
    "decision": "0123456789ab",
    "reason": "estimated",
}


def flat(fields: dict[str, str]) -> bytes:
    """The flat answer: key=value lines, escaped, ended by an empty line."""

    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")

    return "".join(f"{k}={escaped(v)}\n" for k, v in fields.items()).encode() + b"\n"


def answering(fields: dict[str, str] | bytes) -> Behaviour:
    data = fields if isinstance(fields, bytes) else flat(fields)

    def behave(conn: socket.socket, _line: bytes) -> None:
        conn.sendall(data)

    return behave


def dripping(data: bytes, pause_s: float, stop: threading.Event) -> Behaviour:
    """Send byte by byte, pause_s seconds apart."""

    def behave(conn: socket.socket, _line: bytes) -> None:
        for i in range(len(data)):
            conn.sendall(data[i : i + 1])
            if stop.wait(pause_s):
                return

    return behave


def closing(_conn: socket.socket, _line: bytes) -> None:
    """Hang up without an answer."""


class Peer:
    """Serves connections one after another, each for one line, with ``keeps`` for as many as come;
    the last behaviour repeats."""

    def __init__(self, path: Path, behaviours: Sequence[Behaviour], *, keeps: bool = False):
        self.path = path
        self.keeps = keeps
        self.connections = 0
        self.stop = threading.Event()
        self.lines: list[bytes] = []
        self._behaviours = list(behaviours)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(16)
        self._listener.settimeout(0.05)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def requests(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def _serve(self) -> None:
        while not self.stop.is_set():
            try:
                conn, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self.connections += 1
            with conn:
                conn.settimeout(5)
                while self._one(conn) and self.keeps:
                    pass

    def _one(self, conn: socket.socket) -> bool:
        """Answer one line; False where the hook is gone."""
        line = b""
        try:
            while not line.endswith(b"\n") and (part := conn.recv(65536)):
                line += part
        except OSError:
            return False
        if not line and self.keeps:
            return False
        self.lines.append(line)
        behave = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
        try:
            behave(conn, line)
        except OSError:
            return False  # the hook gave up and closed: its right
        return True

    def close(self) -> None:
        self.stop.set()
        self._listener.close()
        self._thread.join(5)
        self.path.unlink(missing_ok=True)
