# SPDX-License-Identifier: Apache-2.0
"""A flood of connections to colocd's port, and who gets in meanwhile."""

import asyncio
import os
from pathlib import Path

import pytest

from slurm_coloc.adapters.link import server
from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.launch.prolog import ASK_S
from tests.flood import flooding

from .conftest import ME, Serve

HELLOS = 12


def hellos(target: str, munge_socket: Path) -> list[str]:
    """Why each of a node's hellos failed within the Prolog's deadline, "" where it did not."""

    def one() -> str:
        try:
            with NetWire(target, Me(ME, "c", "n1", munge_socket), ASK_S) as wire:
                return "" if wire.call("ping")["ok"] else "refused"
        except DaemonUnreachable as err:
            return err.message

    return [one() for _ in range(HELLOS)]


def hellos_in_a_flood(target: str, munge_socket: Path, source: str) -> list[str]:
    with flooding(target, source):
        return hellos(target, munge_socket)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has the ports of root's")
def test_a_flood_of_the_same_address_keeps_no_node_out(serve: Serve, munge_socket: Path) -> None:
    """A user of the node floods; root's hooks on it authenticated before."""

    async def use(target: str) -> None:
        assert await asyncio.to_thread(hellos, target, munge_socket) == [""] * HELLOS
        found = await asyncio.to_thread(hellos_in_a_flood, target, munge_socket, "")
        assert found == [""] * HELLOS

    serve(use)


def test_a_flood_of_another_address_keeps_no_new_node_out(serve: Serve, munge_socket: Path) -> None:
    async def use(target: str) -> None:
        found = await asyncio.to_thread(hellos_in_a_flood, target, munge_socket, "127.0.0.2")
        assert found == [""] * HELLOS

    serve(use)


def test_a_flood_writes_one_line_a_second(
    serve: Serve,
    munge_socket: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(server, "LOG_EVERY_S", 1000.0)

    async def use(target: str) -> None:
        await asyncio.to_thread(hellos_in_a_flood, target, munge_socket, "127.0.0.2")

    serve(use)
    assert capsys.readouterr().out.count("address=") == 1
