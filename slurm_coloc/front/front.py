# SPDX-License-Identifier: Apache-2.0
"""Starts and stops the front, and answers each line that comes to its socket or port."""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import structlog

from slurm_coloc.adapters import slurm
from slurm_coloc.adapters.channel import Channel, Fields
from slurm_coloc.adapters.link.munge import Munge
from slurm_coloc.adapters.link.server import LinkServer
from slurm_coloc.adapters.prometheus.port import MetricsPort, Settings
from slurm_coloc.adapters.server import Faults, Server, decode, encode, wants_flat
from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, parse_config
from slurm_coloc.core.peer import Peer
from slurm_coloc.errors import ConfigError, UsageFault
from slurm_coloc.flow.queries import metrics
from slurm_coloc.flow.queries.site import Site
from slurm_coloc.front.operations import allowed, operations
from slurm_coloc.front.pace import LINES, Paced
from slurm_coloc.front.tickets import Tickets
from slurm_coloc.logs import set_up_log

log = structlog.get_logger()
T = TypeVar("T")


class Front:
    """Serves once the main process says so."""

    def __init__(self) -> None:
        # SQLite and the JSON of large answers, one after the other.
        self._thread = ThreadPoolExecutor(1, "history")
        self._serving: Serving | None = None
        self._end = asyncio.Event()
        self._channel: Channel | None = None

    async def run(self, sock: socket.socket) -> None:
        """Serve until the main process stops or ends. ``sock``: this end of the channel."""
        self._channel = await Channel.open(sock, self._main_says)
        reading = asyncio.create_task(self._channel.run())
        ending = asyncio.create_task(self._end.wait())
        await asyncio.wait([reading, ending], return_when=asyncio.FIRST_COMPLETED)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _main_says(self, op: str, fields: Fields) -> Fields:
        """Answer a call of the main process, or take its message; raises ColocError."""
        serving = self._serving
        match op:
            case "serve":
                await self._serve(**fields)
            case "stop":
                if serving:
                    await serving.stop()
                asyncio.get_running_loop().call_soon(self._end.set)
            case "ping":
                pass
            case "state" if serving:
                serving.site.standby, serving.site.private = fields["standby"], fields["private"]
            case "figures" if serving:
                serving.site.figures.take(fields)
            case "config" if serving:
                await serving.use(parse_config(fields["config"], "the configuration"))
            case "prepare" if serving:
                return await serving.tickets.prepare(**fields)
            case _:
                raise UsageFault(f"{op}: not now", "bad-request")
        return {}

    async def _serve(self, config: Fields, trusted: list[int], state: Fields) -> None:
        assert self._channel is not None
        chosen = parse_config(config, "the configuration")
        set_up_log(chosen.daemon.log_format)
        store = Store.read_only(chosen.daemon.state_dir)

        async def read(what: Callable[..., T], *values: Any) -> T:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, what, store, *values)

        # A few questions only: pyslurm is for the main process.
        client = slurm.connect(chosen.daemon, briefly=True)
        site = Site(chosen, read, client, self._channel, frozenset(trusted), **state)
        serving = Serving(site, self._thread)
        await serving.start()
        self._serving = serving


class Serving:
    """The socket, the port, and what is answered there."""

    def __init__(self, site: Site, thread: ThreadPoolExecutor) -> None:
        """Raises MungeError where the network is wanted without libmunge; ConfigError where no
        estimates can be made."""
        self.site = site
        self._thread = thread
        self.tickets = Tickets(site.config.estimate, site.main)
        self._table = operations(site, self.tickets)
        self._lines = Paced(LINES, site.trusted)
        paces = {one.pace for one in self._table.values()}
        self._paced = {pace: Paced(pace, site.trusted) for pace in paces}
        self._faults = Faults()
        self._server = Server(site.config.daemon.socket, self.answer, site.trusted)
        self._link = self._listener(site.config)
        wanted = site.config.metrics
        where = Settings(wanted.address, wanted.colocd_port, wanted.allow, wanted.token_file)
        self._metrics = MetricsPort(where, lambda: metrics.series(self.site))
        self._scraped: asyncio.Task[None] | None = None

    def _listener(self, config: Config) -> LinkServer | None:
        network, site = config.network, self.site
        if not network.listen:
            return None
        munge = Munge(network.munge_socket)
        return LinkServer(network.listen, munge, self.answer, site.trusted, lambda: site.standby)

    async def start(self) -> None:
        """Listen; raises ConfigError."""
        await self.tickets.start()
        await self._server.start()
        if self._link:
            await self._link.start()
        self._scraped = asyncio.create_task(self._metrics.run())

    async def use(self, config: Config) -> None:
        """Use this configuration from now on; the main process has checked it."""
        self.site.config = config
        try:
            await self.tickets.use(config.estimate)
        except ConfigError as err:
            log.error("reload", error=err.message, result="no text is estimated any more")

    async def stop(self) -> None:
        """Listen no longer; the socket is removed."""
        if self._scraped:
            self._scraped.cancel()
        await self._server.stop()
        if self._link:
            await self._link.stop()
        self.tickets.close()

    async def answer(self, peer: Peer, line: bytes) -> bytes:
        """The answer to one request, with its newline; never raises."""
        as_flat = False
        try:
            async with self._lines.turn(peer.uid):
                message = decode(line)
                as_flat = wants_flat(peer, message)
                operation = allowed(self._table, self.site, peer, message.get("op"))
            async with self._paced[operation.pace].turn(peer.uid):
                answer = {"v": 1, "ok": True, **await operation.handle(peer, message)}
                if operation.trusted or operation.short:
                    return encode(answer, as_flat=as_flat)
                # A long one takes its time: beside the loop.
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._thread, encode, answer)
        except Exception as err:
            return encode(self._faults.answer(peer, err), as_flat=as_flat)
