# SPDX-License-Identifier: Apache-2.0
"""The client against servers that are not colocd, or hang."""

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.client.request import call_socket as ask

Serve = Callable[[socket.socket], None]


def _ignore(_: object) -> None: ...


@pytest.fixture
def served() -> Iterator[Callable[[Serve], Path]]:
    """Starts a server that does one thing to the first connection."""
    with tempfile.TemporaryDirectory(prefix="coloc-") as folder:
        path = Path(folder, "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
        threads: list[threading.Thread] = []

        def start(serve: Serve) -> Path:
            def first() -> None:
                connection, _ = listener.accept()
                with connection:
                    serve(connection)

            threads.append(threading.Thread(target=first, daemon=True))
            threads[-1].start()
            return path

        yield start
        listener.close()
        for thread in threads:
            thread.join(5)


def test_hung(served: Callable[[Serve], Path]) -> None:
    done = threading.Event()
    path = served(lambda _: _ignore(done.wait(10)))
    begin = time.monotonic()
    with pytest.raises(DaemonUnreachable, match=r"no answer within 0\.2 s"):
        ask(path, "ping", deadline_s=0.2)
    done.set()
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize("reply", [b"", b"{", b"[1]\n", b"hello\n", b"\xff\n"])
def test_not_colocd(served: Callable[[Serve], Path], reply: bytes) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall(reply)

    path = served(answer)
    with pytest.raises(DaemonUnreachable):
        ask(path, "ping", deadline_s=5)


def test_dripping_server_meets_the_deadline(served: Callable[[Serve], Path]) -> None:
    """The deadline is for the whole answer, not for each byte."""

    def drip(connection: socket.socket) -> None:
        try:
            for _ in range(100):
                connection.sendall(b" ")
                time.sleep(0.05)
        except OSError:
            pass

    begin = time.monotonic()
    with pytest.raises(DaemonUnreachable):
        ask(served(drip), "ping", deadline_s=0.5)
    assert time.monotonic() - begin < 4


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(DaemonUnreachable, match=r"is slurm-coloc\.service running"):
        ask(tmp_path / "nothing", "ping")
