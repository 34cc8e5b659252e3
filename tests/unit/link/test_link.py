# SPDX-License-Identifier: Apache-2.0
"""Client and server of coloc/1 over a real munged: sessions, forgeries, floods, hangs."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slurm_coloc.adapters.link import frames, server
from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.adapters.link.munge import Munge, MungeError
from slurm_coloc.adapters.link.stream import Link, UnixLink
from slurm_coloc.core.peer import MAX_A_USER
from slurm_coloc.errors import DaemonUnreachable
from tests.harness.ports import free_port

from .conftest import ME, Serve


def wire(target: str, munge_socket: Path, node: str | None = "n1", uid: int = ME) -> NetWire:
    return NetWire(target, Me(uid, "c", node, munge_socket), 5)


def test_questions_and_answers(serve: Serve, munge_socket: Path) -> None:
    async def use(target: str) -> None:
        def ask() -> list[Any]:
            with wire(target, munge_socket) as link:
                assert link.standby is False
                return [link.call("ping", n=number) for number in range(3)]

        found = await asyncio.to_thread(ask)
        assert [one["said"]["n"] for one in found] == [0, 1, 2]
        assert {(one["uid"], one["node"]) for one in found} == {(ME, "n1")}
        link = await Link.open(target, Me(ME, "c", None, munge_socket))
        for number in range(3):
            assert (await link.call("ping", n=number))["said"]["n"] == number
        await link.close()

    serve(use)


def test_a_standby_says_so(serve: Serve, munge_socket: Path) -> None:
    async def use(target: str) -> bool:
        link = await Link.open(target, Me(ME, "", None, munge_socket))
        await link.close()
        return link.standby

    assert serve(use, standby=True) is True


def test_a_credential_for_another_user_opens_nothing(serve: Serve, munge_socket: Path) -> None:
    """As where an impostor, who is not SlurmUser, listens on colocd's port."""

    async def use(target: str) -> None:
        def ask() -> None:
            with wire(target, munge_socket, uid=4242) as link:
                link.call("ping")

        with pytest.raises(DaemonUnreachable, match="meant for another user"):
            await asyncio.to_thread(ask)

    serve(use)


def test_an_impostor_is_not_believed(munge_socket: Path) -> None:
    """It cannot open the credential, so it has no key for an answer."""
    listener = socket.create_server(("127.0.0.1", free_port()))
    target = f"127.0.0.1:{listener.getsockname()[1]}"

    def lie() -> None:
        peer, _ = listener.accept()
        with peer, peer.makefile("rb") as lines:
            peer.sendall(frames.greeting("0" * 32, standby=False))
            lines.readline()
            lines.readline()
            session = frames.Session(b"\0" * 32, "0" * 32, server=True)
            peer.sendall(session.seal(b'{"ok": true, "reservation": {"shards": 39}}'))

    async def run() -> None:
        liar = asyncio.create_task(asyncio.to_thread(lie))

        def ask() -> None:
            with wire(target, munge_socket) as link:
                link.call("launch")

        with pytest.raises(DaemonUnreachable, match="somebody else wrote"):
            await asyncio.to_thread(ask)
        await liar

    asyncio.run(run())
    listener.close()


async def exchange(target: str, sent: bytes) -> bytes:
    host, _, port = target.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await reader.readline()
        writer.write(sent)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_a_replayed_hello(serve: Serve, munge_socket: Path) -> None:
    async def use(target: str) -> None:
        link = await asyncio.to_thread(wire, target, munge_socket)
        sent = link._seal(b'{"v": 1}')
        assert (await exchange(target, sent)).startswith(b"refused protocol the credential was")
        # munged, too, has seen it now.
        assert b"replayed" in await exchange(target, sent)
        with pytest.raises(DaemonUnreachable):
            await asyncio.to_thread(link.call, "ping")
        link.close()

    serve(use)


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(
    st.binary(max_size=400)
    | st.binary(max_size=200).map(lambda text: b"auth MUNGE:" + text + b":\n")
    | st.from_regex(rb"auth MUNGE:[A-Za-z0-9+/=]{0,400}:\n", fullmatch=True)
)
def test_garbage_ends_its_own_connection(serve: Serve, munge_socket: Path, sent: bytes) -> None:
    async def use(target: str) -> None:
        got = await exchange(target, sent)
        assert got == b"" or got.startswith(b"refused "), got
        link = await Link.open(target, Me(ME, "", None, munge_socket))
        assert (await link.call("ping"))["ok"]
        await link.close()

    serve(use)


def test_endless_lines_and_slow_words(
    serve: Serve, munge_socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HELLO_S", 0.3)

    async def use(target: str) -> None:
        assert await exchange(target, b"x" * (2 * frames.MAX_LINE)) == b""
        host, _, port = target.rpartition(":")
        begin = time.monotonic()
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        assert await asyncio.wait_for(reader.read(), 5) == b""  # says nothing: closed
        assert time.monotonic() - begin < 3
        writer.close()

    serve(use)


def test_silent_crowds_do_not_keep_others_out(serve: Serve, munge_socket: Path) -> None:
    """More silent connections of one host than there are places: the oldest go."""

    async def use(target: str) -> None:
        host, _, port = target.rpartition(":")
        crowd = [
            await asyncio.open_connection(host, int(port)) for _ in range(2 * server.WAITING_A_HOST)
        ]
        link = await Link.open(target, Me(ME, "", None, munge_socket))
        assert (await link.call("ping"))["ok"]
        first = crowd[0][0]
        await first.readline()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(first.read(), 5) == b""  # gone, not waiting
        for _, writer in crowd:
            writer.close()
        await link.close()

    serve(use)


def test_an_ordinary_user_has_so_many_connections(serve: Serve, munge_socket: Path) -> None:
    async def use(target: str) -> None:
        me = Me(ME, "", None, munge_socket)
        held = [await Link.open(target, me) for _ in range(MAX_A_USER)]
        for link in held:
            assert (await link.call("ping"))["ok"]
        more = await Link.open(target, me)
        with pytest.raises(DaemonUnreachable, match="too many connections"):
            await more.call("ping")
        await held.pop().close()
        for _ in range(50):
            again = await Link.open(target, me)
            try:
                assert (await again.call("ping"))["ok"]
                break
            except DaemonUnreachable:
                await asyncio.sleep(0.05)
        else:
            raise AssertionError("a closed connection was not given back")
        for link in [*held, again]:
            await link.close()

    serve(use, trusted=set())


def test_munge_errors(munge_socket: Path, tmp_path: Path) -> None:
    munge = Munge(munge_socket)
    made = munge.encode(b"x", ME, 5)
    assert munge.decode(made, 5).uid == ME
    for credential, words in ((made, "replayed"), ("MUNGE:AAAA:", "munge:"), ("", "munge:")):
        with pytest.raises(MungeError, match=words):
            munge.decode(credential, 5)
    with pytest.raises(MungeError, match=r"munge\.service") as caught:
        Munge(tmp_path / "none").encode(b"x", ME, 5)
    assert caught.value.away


def test_a_stopped_munged_meets_the_limit(munge_socket: Path) -> None:
    pid = int((munge_socket.parent / "p").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        with pytest.raises(MungeError) as caught:
            Munge(munge_socket).encode(b"x", ME, 0.3)
        assert caught.value.away
        assert time.monotonic() - begin < 2
    finally:
        os.kill(pid, signal.SIGCONT)


def test_what_the_hooks_import() -> None:
    """What would make each start slower: asyncio, pydantic, and dataclasses, of which each costs
    more than half a millisecond (named tuples a seventh of that)."""
    code = (
        "import sys, slurm_coloc.flow.launch.prolog, slurm_coloc.flow.finish.epilog;"
        "print([m for m in sys.argv[1:] if m in sys.modules])"
    )
    heavy = ("asyncio", "dataclasses", "inspect", "pydantic", "secrets", "structlog", "typer")
    argv = [sys.executable, "-c", code, *heavy]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Written:
    """A writer that takes everything."""

    def write(self, data: bytes) -> None:
        pass


def test_an_exchange_that_is_cancelled_with_its_answer_ends() -> None:
    """Whatever turn of the loop the cancellation comes in: a link that went on would be an agent
    that systemd has to kill."""

    async def cancelled_after(turns: int) -> bool:
        reader = asyncio.StreamReader()
        link = UnixLink("x", reader, cast(asyncio.StreamWriter, Written()))
        task = asyncio.create_task(link.exchange(b"{}"))
        await asyncio.sleep(0.01)
        reader.feed_data(b'{"ok": true}\n')
        for _ in range(turns):
            await asyncio.sleep(0)
        wanted = task.cancel()
        await asyncio.wait([task])
        return task.cancelled() == wanted

    assert all(asyncio.run(cancelled_after(turns)) for turns in range(8))
