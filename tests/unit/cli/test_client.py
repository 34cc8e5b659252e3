# SPDX-License-Identifier: Apache-2.0
"""The client against servers that are not colocd, or hang."""

import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from slurm_coloc.errors import ColocError, DaemonUnreachable
from slurm_coloc.flow.client.request import call_socket as ask

Serve = Callable[[socket.socket], None]


def _ignore(_: object) -> None: ...


@pytest.fixture
def served() -> Iterator[Callable[..., Path]]:
    """Starts a server that does one thing to the first connection, or to the first ``times``."""
    with tempfile.TemporaryDirectory(prefix="coloc-") as folder:
        path = Path(folder, "s")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen(1)
        threads: list[threading.Thread] = []

        def start(serve: Serve, times: int = 1) -> Path:
            def first() -> None:
                with suppress(OSError):  # the test is over
                    for _ in range(times):
                        connection, _ = listener.accept()
                        with connection:
                            serve(connection)

            threads.append(threading.Thread(target=first, daemon=True))
            threads[-1].start()
            return path

        yield start
        listener.shutdown(socket.SHUT_RDWR)  # a thread that waits for the next one ends
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


def _refusals(*replies: bytes) -> Serve:
    """Answers each connection with the next of these; the last one again and again."""
    left = list(replies)

    def answer(connection: socket.socket) -> None:
        connection.recv(100)
        connection.sendall((left.pop(0) if len(left) > 1 else left[0]) + b"\n")

    return answer


BUSY = b'{"v": 1, "ok": false, "error": {"code": "busy", "message": "busy: more than 5"}}'


def test_a_user_who_asks_too_fast_is_slowed_down_and_answered(
    served: Callable[..., Path],
) -> None:
    """`coloc report 1,2,...,40` asks once a job: the pace of a user must not end it."""
    path = served(_refusals(BUSY, BUSY, b'{"v": 1, "ok": true, "jobs": []}'), times=3)
    assert ask(path, "jobs", deadline_s=5)["jobs"] == []


def test_who_stays_too_fast_is_told_so_in_the_end(served: Callable[..., Path]) -> None:
    """Once the request's own time is over: a loop of a script does not ask for ever."""
    begin = time.monotonic()
    with pytest.raises(ColocError, match="more than 5") as caught:
        ask(served(_refusals(BUSY), times=20), "jobs", deadline_s=0.6)
    assert caught.value.code == "busy"
    assert 0.6 <= time.monotonic() - begin < 3


def test_other_refusals_are_told_at_once(served: Callable[..., Path]) -> None:
    wrong = BUSY.replace(b'"busy"', b'"unknown-job"')
    with pytest.raises(ColocError) as caught:
        ask(served(_refusals(wrong)), "jobs", deadline_s=5)
    assert caught.value.code == "unknown-job"
