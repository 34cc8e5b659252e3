# SPDX-License-Identifier: Apache-2.0
"""Cost of a link to colocd: MUNGE, handshake with a first question, questions after it.

Starts a munged and a link server of its own, in a process of its own; prints medians and 99th
percentiles in milliseconds. The last rows are those of an honest node while a process floods the
port with connections: from another address (the node connects from any port), and from the node's
own address (as root, from a port that is root's).
"""

import asyncio
import json
import multiprocessing
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import structlog

from slurm_coloc.adapters.link import source_port
from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.adapters.link.munge import Munge
from slurm_coloc.adapters.link.server import LinkServer
from slurm_coloc.core.peer import Peer
from slurm_coloc.errors import DaemonUnreachable
from tests.flood import flooding

ROUNDS = 500
HELLO_S = 0.5  # all that a Prolog has
SECONDS = 3.0
HELD = {"decision": "0" * 12, "action": "collocate", "shards": 12, "shard_mib": 1024}


async def _pong(peer: Peer, line: bytes) -> bytes:
    return json.dumps({"v": 1, "ok": True, "reservation": HELD}).encode() + b"\n"


def _serve(target: str, munge_socket: Path, ready: Event) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    munge = Munge(munge_socket)

    async def run() -> None:
        server = LinkServer(target, munge, _pong, {os.geteuid()}, lambda: False)
        await server.start()
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(run())


def _times_ms(what: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        what()
        found.append((time.perf_counter() - begin) * 1000)
    return found


def _print(name: str, times: list[float]) -> None:
    p99 = statistics.quantiles(times, n=100)[98]
    print(f"{name:<34} {statistics.median(times):>10.2f} {p99:>8.2f} {max(times):>9.2f}")


@contextmanager
def munged() -> Iterator[Path]:
    """The socket of a munged of its own, in a folder that goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="coloc-bench-"))
    (folder / "key").write_bytes(secrets.token_bytes(1024))
    (folder / "key").chmod(0o400)
    folder.chmod(0o755)
    files = {"socket": "s", "key-file": "key", "pid-file": "p", "seed-file": "seed"}
    argv = [shutil.which("munged", path="/usr/sbin:/usr/bin") or "munged", "--foreground"]
    argv += ["--force", *(f"--{key}={folder / name}" for key, name in files.items())]
    daemon = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        while not _connects(folder / "s"):
            time.sleep(0.05)
        yield folder / "s"
    finally:
        daemon.terminate()
        daemon.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def free_place() -> str:
    """host:port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def served() -> Iterator[tuple[str, Path]]:
    """A link server over a munged of its own: host:port and munged's socket."""
    with munged() as munge_socket:
        target = free_place()
        fork = multiprocessing.get_context("fork")
        ready = fork.Event()
        server = fork.Process(target=_serve, args=(target, munge_socket, ready), daemon=True)
        server.start()
        ready.wait(10)
        yield target, munge_socket
        server.kill()
        server.join()


def _connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def main() -> int:
    """Print the table."""
    with served() as (target, munge_socket):
        _measure(target, munge_socket)
    return 0


def _measure(target: str, munge_socket: Path) -> None:
    munge, uid = Munge(munge_socket), os.geteuid()
    me = Me(uid, "bench", "n1", munge_socket)

    def connect_and_ask() -> None:
        with NetWire(target, me, 5) as wire:
            assert wire.call("ping")["ok"]

    made = [munge.encode(b"x" * 200, uid, 5) for _ in range(ROUNDS)]
    print(f"{'link to colocd, this host':<34} {'median ms':>10} {'p99 ms':>8} {'worst ms':>9}")
    _print("munge: make a credential", _times_ms(lambda: munge.encode(b"x" * 200, uid, 5)))
    _print("munge: open a credential", _times_ms(lambda: munge.decode(made.pop(), 5)))
    _print("connect, handshake, first answer", _times_ms(connect_and_ask))
    with NetWire(target, me, 60) as wire:
        _print("one more question", _times_ms(lambda: wire.call("ping")))
    print(
        f"\n{'hellos of a node':<34} {'median ms':>10} {'p99 ms':>8} {'worst ms':>9} a second  late"
    )
    _hellos("nobody floods", target, me)
    tries, source_port.TRIES = source_port.TRIES, 0  # from any port, as a user
    with flooding(target, source="127.0.0.2"):
        _hellos("flooded from another address", target, me)
    with flooding(target, source="127.0.0.2", processes=2):
        _hellos("the same, by two processes", target, me)
    source_port.TRIES = tries
    with flooding(target):  # then users of this address are dropped for DROP_S
        _hellos("flooded from its own address", target, me)


def _hellos(name: str, target: str, me: Me) -> None:
    """One after the other for SECONDS: times, how many a second, how many were late."""
    times, late = [], 0
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        begin = time.perf_counter()
        try:
            with NetWire(target, me, HELLO_S) as wire:
                assert wire.call("ping")["ok"]
        except DaemonUnreachable:
            late += 1
        times.append((time.perf_counter() - begin) * 1000)
        time.sleep(0.005)  # below its rate
    p99 = statistics.quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    row = f"{statistics.median(times):>10.2f} {p99:>8.2f} {max(times):>9.2f}"
    print(f"{name:<34} {row} {len(times) / SECONDS:>8.0f} {late:>5}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
