# SPDX-License-Identifier: Apache-2.0
"""A munged of the test's own, and a link server over it."""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.link.munge import Munge
from slurm_coloc.adapters.link.server import LinkServer
from slurm_coloc.core.peer import Peer
from tests.harness.ports import free_port

ME = os.geteuid()
MUNGED = shutil.which("munged", path="/usr/sbin:/usr/bin:/sbin")


@pytest.fixture(scope="session")
def munge_socket() -> Iterator[Path]:
    """A munged with a key of its own, run by this process' user."""
    if MUNGED is None:
        pytest.skip("munged is not installed")
    folder = Path(tempfile.mkdtemp(prefix="coloc-munge-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "key").chmod(0o400)
    names = {"socket": "s", "key-file": "key", "pid-file": "p", "seed-file": "seed"}
    argv = [MUNGED, "--foreground", "--force"]
    argv += [f"--{option}={folder / name}" for option, name in names.items()]
    daemon = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while not _connects(folder / "s"):
        assert time.monotonic() < end and daemon.poll() is None, "munged does not start"
        time.sleep(0.02)
    yield folder / "s"
    daemon.terminate()
    daemon.wait(10)
    shutil.rmtree(folder, ignore_errors=True)


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


async def echo(peer: Peer, line: bytes) -> bytes:
    """Answers what was understood of the peer and its request."""
    said = json.loads(line)
    return (
        json.dumps({"ok": True, "uid": peer.uid, "node": peer.node, "said": said}).encode() + b"\n"
    )


Use = Callable[[str], Awaitable[Any]]
Serve = Callable[..., Any]


@pytest.fixture
def serve(munge_socket: Path) -> Serve:
    """serve(use, ...): runs ``use(host:port)`` against a server, returns what it returns."""

    def start(
        use: Use, *, trusted: set[int] | None = None, standby: bool = False, answer: Any = echo
    ) -> Any:
        target = f"127.0.0.1:{free_port()}"

        async def run() -> Any:
            munge = Munge(munge_socket)
            own = {ME} if trusted is None else trusted
            server = LinkServer(target, munge, answer, own, lambda: standby)
            await server.start()
            try:
                return await use(target)
            finally:
                await server.stop()

        return asyncio.run(run())

    return start
