# SPDX-License-Identifier: Apache-2.0
"""Who gets into colocd's port after somebody has used up a rate of new connections.

A flood that goes on, against the clock: tests/cluster/test_port_flood.py.
"""

import asyncio
import os
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from slurm_coloc.adapters.link import admission, server
from slurm_coloc.adapters.link.admission import KNOWN
from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.errors import DaemonUnreachable

from .conftest import ME, Serve

HELLOS = 12
HELLO_S = 10.0  # what a busy machine may take; nothing here waits so long where it is let in
REFUSED_S = 0.5  # the kernel answers nothing where it drops an origin


@pytest.fixture(autouse=True)
def _used_up_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rate grows again while this process waits for a core."""
    for name in ("KNOWN", "STRANGER", "STRANGERS"):
        monkeypatch.setattr(admission, name, getattr(admission, name)._replace(a_second=1e-6))


def hellos(target: str, munge_socket: Path) -> list[str]:
    """Why each of a node's hellos failed, "" where it did not."""

    def one() -> str:
        try:
            with NetWire(target, Me(ME, "c", "n1", munge_socket), HELLO_S) as wire:
                return "" if wire.call("ping")["ok"] else "refused"
        except DaemonUnreachable as err:
            return err.message

    return [one() for _ in range(HELLOS)]


def hellos_after_a_flood(target: str, munge_socket: Path, source: str) -> list[str]:
    """The same when an ordinary user over there has just used up its rate."""
    use_up(target, source)
    assert not greeted(target, source)
    return hellos(target, munge_socket)


def use_up(target: str, source: str) -> None:
    """Connect from an ordinary user's ports, more often than a known address may."""
    host, _, port = target.rpartition(":")
    with ExitStack() as held:
        for _ in range(int(KNOWN.burst) + 1000):
            one = held.enter_context(socket.socket())
            one.bind((source, 0))
            one.setblocking(False)
            one.connect_ex((host, int(port)))


def greeted(target: str, source: str) -> bool:
    """Whether colocd says a word to a new connection from there within REFUSED_S."""
    host, _, port = target.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), REFUSED_S, (source, 0)) as one:
            return one.recv(1) != b""
    except OSError:
        return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has the ports of root's")
def test_a_flood_of_the_same_address_keeps_no_node_out(serve: Serve, munge_socket: Path) -> None:
    """A user of the node floods; root's hooks on it authenticated before."""

    async def use(target: str) -> None:
        assert await asyncio.to_thread(hellos, target, munge_socket) == [""] * HELLOS
        found = await asyncio.to_thread(hellos_after_a_flood, target, munge_socket, "127.0.0.1")
        assert found == [""] * HELLOS

    serve(use)


def test_a_flood_of_another_address_keeps_no_new_node_out(serve: Serve, munge_socket: Path) -> None:
    async def use(target: str) -> None:
        found = await asyncio.to_thread(hellos_after_a_flood, target, munge_socket, "127.0.0.2")
        assert found == [""] * HELLOS

    serve(use)


def test_a_flood_writes_one_line_a_second(
    serve: Serve,
    munge_socket: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(server, "LOG_EVERY_S", 1e9)  # longer than this machine is up

    async def use(target: str) -> None:
        await asyncio.to_thread(hellos_after_a_flood, target, munge_socket, "127.0.0.2")

    serve(use)
    assert capsys.readouterr().out.count("address=") == 1
