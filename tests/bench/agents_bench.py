# SPDX-License-Identifier: Apache-2.0
"""What the agents of a large cluster cost colocd: their links, and a heartbeat of each.

Each agent has an address of its own (127.0.0.0/8) and a link that is kept; the server, in a process
of its own, takes heartbeats as colocd does (flow/nodes/agents), of nodes with eight GPUs and jobs.
An agent sends one in 20 s. All of them connect at once, as after a restart of colocd.

.venv/bin/python -m tests.bench.agents_bench [NODES ...]    (root: 100, 1,000 and 10,000)
"""

import asyncio
import json
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc.adapters.link import client
from slurm_coloc.adapters.link.client import Me, NetWire
from slurm_coloc.adapters.link.munge import Munge
from slurm_coloc.adapters.link.server import LinkServer
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.peer import Peer
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.nodes.agents import Nodes
from tests.bench import link_bench

SIZES = (100, 1_000, 10_000)
BEAT_S = 20.0
ROUNDS = 3
GPUS = 8
LIMIT_S = 600.0  # of a link, with all that is asked over it


def address(number: int) -> str:
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


def heartbeat(number: int) -> dict[str, Any]:
    """Of a node whose GPUs have a job each."""
    figures = {"smact": 0.61, "smocc": 0.3, "dram": 0.2, "pcie_tx_mib_s": 812.0, "power_w": 310.5}
    gpus = [
        {
            "uuid": f"GPU-{number:08x}-{gpu:04x}-0000-0000-000000000000",
            "index": gpu,
            "minor": gpu,
            "name": "NVIDIA A100-SXM4-40GB",
            "total_mib": 40536,
            "free_mib": 30000,
            "jobs": [{"job_id": number * GPUS + gpu + 1, "mib": 9000, "smact": 0.61}],
            **figures,
        }
        for gpu in range(GPUS)
    ]
    runs = [[number * GPUS + gpu + 1, 0, time.time()] for gpu in range(GPUS)]
    return {"version": "0.1.0", "spooled": 0, "gpus": gpus, "runs": runs, "pcie_rx_mib_s": None}


def serve(nodes: int, target: str, munge: Path, ready: Event, asked: Connection) -> None:
    """A link server with colocd's own part for agents, until it is killed; answers what it has
    used so far: CPU seconds and MiB of memory."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    shapes = tuple(
        NodeShape(f"n{number}", ("gpu",), (), "a100", GPUS, GPUS * 39, address=address(number))
        for number in range(nodes)
    )
    shape = ClusterShape("c", (24, 11), nodes=shapes)
    store = Store.open(Path(tempfile.mkdtemp(prefix="coloc-bench-", dir=munge.parent)))
    parts = Nodes(lambda: shape, {0, os.geteuid()}, store)

    async def answer(peer: Peer, line: bytes) -> bytes:
        message = json.loads(line)
        node = await parts.speaker(peer)
        return json.dumps({"v": 1, "ok": True, **parts.hear(node, peer, message)}).encode() + b"\n"

    async def run() -> None:
        server = LinkServer(target, Munge(munge), answer, {0, os.geteuid()}, lambda: False)
        await server.start()
        ready.set()
        loop = asyncio.get_running_loop()
        loop.add_reader(asked.fileno(), lambda: (asked.recv(), asked.send(_used())))
        await asyncio.Event().wait()

    asyncio.run(run())


def _used() -> tuple[float, float]:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return spent.ru_utime + spent.ru_stime, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def agents(target: str, munge: Path, nodes: int) -> tuple[list[NetWire], float]:
    """A link of each node, and how many seconds they took in all. One that is refused, or is not
    answered in time, tries again, as agents do."""
    links: dict[int, NetWire] = {}
    begin = time.monotonic()
    while len(links) < nodes:
        for number in range(nodes):
            if number in links:
                continue
            _bind(address(number))
            me = Me(os.geteuid(), "c", f"n{number}", munge)
            try:
                link = NetWire(target, me, LIMIT_S)
                link.call("beat", **heartbeat(number))
            except DaemonUnreachable:
                time.sleep(0.01)
                continue
            links[number] = link
    return [links[number] for number in range(nodes)], time.monotonic() - begin


def _bind(source: str) -> None:
    """The next link of this process comes from there, from a port of the superuser's."""

    def connected(family: int, place: Any, limit_s: float) -> socket.socket:
        for port in range(1023, 512, -1):
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            sock.settimeout(limit_s)
            try:
                sock.bind((source, port))
                sock.connect(place)
            except OSError:
                sock.close()
            else:
                return sock
        raise OSError(f"no port of {source}")

    client.connected = connected  # type: ignore[assignment]


def measure(nodes: int) -> None:
    """One row of the table."""
    with link_bench.munged() as munge:
        target = link_bench.free_place()
        fork = multiprocessing.get_context("fork")
        ready, (ask, asked) = fork.Event(), fork.Pipe()
        server = fork.Process(target=serve, args=(nodes, target, munge, ready, asked), daemon=True)
        server.start()
        ready.wait(30)

        def used() -> tuple[float, float]:
            ask.send(None)
            return tuple(ask.recv())

        empty_s, empty_mib = used()
        links, took_s = agents(target, munge, nodes)
        linked_s, linked_mib = used()
        times = []
        for _ in range(ROUNDS):
            for number, link in enumerate(links):
                begin = time.perf_counter()
                link.call("beat", **heartbeat(number))
                times.append((time.perf_counter() - begin) * 1000)
        beat_s = (used()[0] - linked_s) / (ROUNDS * nodes)
        core = beat_s * nodes / BEAT_S
        link_ms = (linked_s - empty_s) / nodes * 1000
        p99 = statistics.quantiles(times, n=100)[98]
        print(
            f"{nodes:>8,} {took_s:>9.1f} {link_ms:>9.2f} {linked_mib - empty_mib:>9.0f}"
            f" {beat_s * 1000:>9.2f} {100 * core:>8.1f} % {statistics.median(times):>9.2f}"
            f" {p99:>8.2f}",
            flush=True,
        )
        server.kill()
        server.join()
        for link in links:
            link.close()


def main(sizes: list[int]) -> int:
    """Print the table."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("   nodes   all s in  CPU ms a  MiB more   CPU ms a  a core at   ms of a  99 %")
    print("          linked in      link               beat    1 in 20 s      beat")
    for nodes in sizes:
        measure(nodes)
    return 0


if __name__ == "__main__":
    sys.exit(main([int(one.replace(",", "")) for one in sys.argv[1:]] or list(SIZES)))
