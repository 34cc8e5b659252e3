# SPDX-License-Identifier: Apache-2.0
"""colocd: answers the hook and people, follows the jobs, recovers, learns. ``coloc serve``.

This module starts and stops it. ``parts`` makes its objects, ``requests`` answers, ``ends`` follows
jobs that end, ``loops`` repeats its rounds.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import structlog

from slurm_coloc.adapters import notify
from slurm_coloc.adapters.link.munge import Munge
from slurm_coloc.adapters.link.server import LinkServer
from slurm_coloc.adapters.server import Server
from slurm_coloc.config import Config, load_config
from slurm_coloc.daemon.ends import Ends
from slurm_coloc.daemon.loops import FIRST_SHAPE_S, Loops
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.daemon.requests import Requests
from slurm_coloc.errors import ConfigError
from slurm_coloc.logs import set_up_log

log = structlog.get_logger()


class Daemon:
    def __init__(self, config: Config, path: Path | None) -> None:
        """Raises ConfigError; MungeError where the network is wanted without libmunge."""
        self._path = path
        self.parts = Parts(config)
        self._ends = Ends(self.parts)
        self.loops = Loops(self.parts, self._ends)
        self._requests = Requests(self.parts, self._ends, self.reload)
        handle, trusted = self._requests.handle, self.parts.trusted
        self._server = Server(config.daemon.socket, handle, trusted)
        self._link = self._listener(config)
        self._requests.linked = self._link is not None
        self.stop = asyncio.Event()

    def _listener(self, config: Config) -> LinkServer | None:
        network, parts = config.network, self.parts
        if not network.listen:
            return None
        munge, answer = Munge(network.munge_socket), self._server.answer
        return LinkServer(network.listen, munge, answer, parts.trusted, lambda: parts.standby)

    def reload(self) -> None:
        """Read the configuration again; a wrong file leaves the old one in force."""
        notify.reloading()
        try:
            config = load_config(self._path)
        except ConfigError as err:
            log.error("reload", error=err.message, result="the old configuration stays in force")
            raise
        finally:
            notify.ready()
        self.parts.decider.close()
        self.parts.use(config)
        self._ends.background(self.parts.decider.warm_up())
        log.info("reload", result="ok")

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hup)
        loops = [self.loops.refreshing()]
        await asyncio.gather(self.parts.decider.warm_up(), self._first_shape())
        await self._server.start()
        if self._link:
            await self._link.start()
        loops += self.loops.others()
        notify.ready()
        config = self.parts.config
        listens = {"listen": config.network.listen} if self._link else {}
        socket, mode = str(config.daemon.socket), config.mode.default
        log.info("ready", socket=socket, mode=mode, **listens)
        await self.stop.wait()
        notify.stopping()
        for task in loops:
            task.cancel()
        await self._server.stop()
        if self._link:
            await self._link.stop()
        await self.parts.placement.close()
        self.parts.decider.close()
        self.parts.store.close()
        log.info("stopped")

    async def _first_shape(self) -> None:
        """Wait up to FIRST_SHAPE_S for the cluster's shape before the first answer; a slurmctld
        that does not answer is not waited for longer."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.parts.cluster.answered.wait(), FIRST_SHAPE_S)
        if self.parts.cluster.shape is None:
            log.warning("refresh", result="jobs get whole GPUs until Slurm has answered")

    def _hup(self) -> None:
        try:
            self.reload()
        except ConfigError:
            pass  # logged; the old one stays


def serve(path: Path | None = None) -> None:
    """Run colocd in the foreground; raises ConfigError where it cannot start."""
    config = load_config(path)
    set_up_log(config.daemon.log_format)
    os.umask(0o077)
    try:
        config.daemon.state_dir.mkdir(parents=True, exist_ok=True)
        daemon = Daemon(config, path)
    except OSError as err:
        raise ConfigError(f"{config.daemon.state_dir}: {err}") from err
    asyncio.run(daemon.run())
