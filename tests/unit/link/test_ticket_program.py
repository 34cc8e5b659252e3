# SPDX-License-Identifier: Apache-2.0
"""coloc-ticket, as the SPANK plugin starts it, against colocd's side of both sockets.

It is built under the address and undefined sanitizers where the compiler has them.
"""

import asyncio
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.link import frames
from slurm_coloc.core.peer import Peer
from tests.harness.ports import free_port
from tests.unit.test_spank_build import REASON, SPANK, make

from .conftest import ME, Serve

pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")

TICKET = "00112233445566778899aabbccddeeff"
REQUEST = json.dumps({"v": 1, "op": "ticket", "coloc": {"summary": "eNpLBAA=" * 8000}})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ticket")
    name = "coloc-ticket-checked"
    done = subprocess.run(
        ["make", "-C", str(SPANK), f"BUILD={folder}", f"{folder}/{name}"], capture_output=True
    )
    if done.returncode:
        make(folder)
        name = "coloc-ticket"
    return folder / name


def run(program: Path, *args: str, request: str = REQUEST) -> tuple[int, str, str]:
    """Exit code, ticket and complaints of the program in an empty environment."""
    done = subprocess.run(
        [str(program), *args], input=request, capture_output=True, text=True, env={}, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@contextmanager
def unix_server(path: Path, answer: Callable[[bytes], bytes | None]) -> Iterator[None]:
    """Answers one line; None: says nothing until the client has gone."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer, peer.makefile("rb") as lines:
                said = answer(lines.readline())
                try:
                    peer.sendall(said) if said is not None else lines.read()
                except OSError:
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(10)


def given(ticket: str = TICKET) -> bytes:
    return json.dumps({"v": 1, "ok": True, "ticket": ticket}).encode() + b"\n"


def test_by_the_unix_socket(program: Path, tmp_path: Path) -> None:
    seen: list[bytes] = []

    def answer(line: bytes) -> bytes:
        seen.append(line)
        return given()

    with unix_server(tmp_path / "s", answer):
        assert run(program, f"--socket={tmp_path}/s") == (0, TICKET + "\n", "")
    assert json.loads(seen[0]) == json.loads(REQUEST)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n",
        b"x" * 10_000,
        b"x" * 10_000 + b"\n",
        given("0" * 31),
        given("0" * 33),
        given("G" * 32),
        given()[:-1],
        b'{"v": 1, "ok": false, "error": {"code": "busy", "message": "\\"ticket\\": x"}}\n',
        b"\0" + given(),
    ],
)
def test_an_answer_without_a_ticket(program: Path, tmp_path: Path, said: bytes) -> None:
    with unix_server(tmp_path / "s", lambda _: said):
        code, out, err = run(program, f"--socket={tmp_path}/s", "--deadline-ms=5000")
    assert (code, out) == (1, "") and "coloc-ticket: " in err and "Sanitizer" not in err


def test_nobody_and_somebody_who_says_nothing(program: Path, tmp_path: Path) -> None:
    code, out, err = run(program, f"--socket={tmp_path}/none")
    assert (code, out) == (1, "") and err.endswith("No such file or directory\n")
    with unix_server(tmp_path / "s", lambda _: None):
        code, out, _ = run(program, f"--socket={tmp_path}/s", "--deadline-ms=200")
    assert code != 0 and out == ""


@pytest.mark.parametrize("request_", ["", "\n", "a\nb\n", "a\0b", "x" * (96 * 1024)])
def test_what_is_no_request_is_not_sent(program: Path, tmp_path: Path, request_: str) -> None:
    with unix_server(tmp_path / "s", lambda _: given()):
        code, out, err = run(program, f"--socket={tmp_path}/s", request=request_)
    assert (code, out) == (1, "") and "standard input" in err


@pytest.mark.parametrize("word", ["--deadline-ms=0", "--deadline-ms=x", "--what", "more"])
def test_wrong_arguments(program: Path, word: str) -> None:
    assert run(program, word)[0] == 2


def over_tcp(program: Path, munge_socket: Path, targets: str, *more: str) -> tuple[int, str, str]:
    words = f"--controllers={targets}", f"--slurm-user={ME}", f"--munge-socket={munge_socket}"
    return run(program, "--socket=/nowhere/s", *words, "--deadline-ms=20000", *more)


def ticketing(seen: list[tuple[Peer, Any]]) -> Callable[[Peer, bytes], Any]:
    async def answer(peer: Peer, line: bytes) -> bytes:
        seen.append((peer, json.loads(line)))
        return given()

    return answer


def test_by_tcp_with_munge(program: Path, serve: Serve, munge_socket: Path) -> None:
    """A dead controller is passed over. The server knows who asks."""
    seen: list[tuple[Peer, Any]] = []

    async def use(target: str) -> tuple[int, str, str]:
        dead = f"127.0.0.1:{free_port()}"
        return await asyncio.to_thread(over_tcp, program, munge_socket, f"{dead},{target}")

    code, out, err = serve(use, answer=ticketing(seen))
    assert (code, out) == (0, TICKET + "\n"), err
    peer, request = seen[0]
    assert (peer.uid, peer.remote, peer.node) == (os.geteuid(), True, None)
    assert request == json.loads(REQUEST)


def test_a_standby_gives_no_ticket(program: Path, serve: Serve, munge_socket: Path) -> None:
    async def use(target: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(over_tcp, program, munge_socket, target)

    code, out, err = serve(use, standby=True)
    assert (code, out) == (1, "") and "another colocd is the active one" in err


def test_an_impostor_gives_no_ticket(program: Path, munge_socket: Path) -> None:
    """It is not SlurmUser and cannot open the credential, so its answer has no right MAC."""
    listener = socket.create_server(("127.0.0.1", 0))
    target = f"127.0.0.1:{listener.getsockname()[1]}"

    def lie() -> None:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as lines:
            peer.sendall(frames.greeting("0" * 32, standby=False))
            lines.readline()
            lines.readline()
            session = frames.Session(b"\0" * 32, "0" * 32, server=True)
            peer.sendall(session.seal(given().rstrip(b"\n")))

    thread = threading.Thread(target=lie, daemon=True)
    thread.start()
    code, out, err = over_tcp(program, munge_socket, target)
    thread.join(10)
    listener.close()
    assert (code, out) == (1, "") and "not colocd's answer" in err
