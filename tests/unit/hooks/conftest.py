# SPDX-License-Identifier: Apache-2.0
"""Folders that another user can reach, and that user: the hooks run as root for somebody else."""

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
USER = 54321  # no account needs to exist: only numbers are dropped to


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it drops to another user for real")


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may pass (pytest's own tmp_path is closed to others)."""
    folder = Path(tempfile.mkdtemp(prefix="coloc-hooks-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def work(public: Path) -> Path:
    """The user's work directory."""
    folder = public / "work"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, USER, USER)
    return folder


Answer = Callable[[bytes], bytes | None]


class Listener:
    """A Unix socket that takes lines and answers what it is told; None never answers."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self.lines: list[bytes] = []
        self._answer = answer
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(str(path))
        self._sock.listen(4)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._sock.accept()
            except OSError:
                return
            self._open.append(peer)
            with peer.makefile("rb") as lines:
                for line in lines:
                    self.lines.append(line)
                    reply = self._answer(line)
                    if reply is not None:
                        peer.sendall(reply)

    def close(self) -> None:
        for each in (self._sock, *self._open):
            each.close()


@pytest.fixture
def listen(public: Path) -> Iterator[Callable[[Answer], Listener]]:
    """Start a listener at <public>/colocd.sock."""
    started: list[Listener] = []

    def start(answer: Answer) -> Listener:
        started.append(Listener(public / "colocd.sock", answer))
        return started[-1]

    yield start
    for each in started:
        each.close()


def ok(_: bytes) -> bytes:
    return b'{"v":1,"ok":true}\n'
