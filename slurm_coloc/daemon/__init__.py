# SPDX-License-Identifier: Apache-2.0
"""colocd's main process: answers slurmctld's hook, follows the jobs, recovers, learns, and is the
only writer of the database. ``coloc serve``.

It listens on the hook's socket alone. Everybody else talks to its child, the front
(slurm_coloc/front), so that nothing that users send holds the loop that slurmctld waits for. This
module starts and stops it. ``parts`` makes its objects, ``requests`` answers, ``ends`` follows jobs
that end, ``loops`` repeats its rounds, ``front_process`` keeps the front, ``for_front`` answers it.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import structlog

from slurm_coloc.adapters import notify
from slurm_coloc.adapters.realtime import Realtime
from slurm_coloc.adapters.server import Server, answering, private_folder
from slurm_coloc.config import Config, load_config
from slurm_coloc.daemon.ends import Ends
from slurm_coloc.daemon.for_front import ForFront
from slurm_coloc.daemon.front_process import FrontProcess
from slurm_coloc.daemon.loops import FIRST_SHAPE_S, Loops
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.daemon.requests import Requests
from slurm_coloc.errors import ConfigError
from slurm_coloc.logs import set_up_log

log = structlog.get_logger()


class Daemon:
    def __init__(self, config: Config, path: Path | None) -> None:
        """Raises ConfigError."""
        self._path = path
        self.parts = Parts(config)
        self._ends = Ends(self.parts)
        self.loops = Loops(self.parts, self._ends)
        requests = Requests(self.parts, self._ends, self.reload)
        self._hook_path, trusted = config.daemon.hook_path, self.parts.trusted
        answer = answering(requests.handle)
        self._server = Server(self._hook_path, answer, trusted, everybody=False)
        self.front = FrontProcess(self.parts, ForFront(self.parts, requests))
        self.parts.prepare = self.front.prepare
        self.stop = asyncio.Event()

    def reload(self) -> None:
        """Read the configuration again; a wrong file leaves the old one in force."""
        notify.reloading()
        try:
            config = load_config(self._path)
            self.parts.use(config)
        except ConfigError as err:
            log.error("reload", error=err.message, result="the old configuration stays in force")
            raise
        finally:
            notify.ready()
        self.front.reload()
        log.info("reload", result="ok")

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. SIGHUP reloads. Raises ConfigError where it cannot start;
        MungeError where the network is wanted without libmunge."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hup)
        tasks, realtime = [self.loops.refreshing()], Realtime(loop)
        try:
            await self.front.begin()
            await self._first_shape()
            private_folder(self._hook_path.parent, self.parts.slurm_uid)
            await self._server.start()
            await self.front.serve()
            tasks += [*self.loops.others(), asyncio.create_task(self.front.keep())]
            self._ready(realtime.begin())
            await self.stop.wait()
            notify.stopping()
        finally:
            realtime.end()
            for task in tasks:
                task.cancel()
            await self._server.stop()
            await self.front.stop()
        await self.parts.placement.close()
        self.parts.afterwards.run()
        self.parts.store.close()
        log.info("stopped")

    def _ready(self, realtime: bool) -> None:
        notify.ready()
        config = self.parts.config
        listens = {"listen": config.network.listen} if config.network.listen else {}
        sockets = {"socket": str(config.daemon.socket), "hook_socket": str(self._hook_path)}
        scheduling = "realtime" if realtime else "normal"
        log.info("ready", mode=config.mode.default, scheduling=scheduling, **sockets, **listens)

    async def _first_shape(self) -> None:
        """Wait up to FIRST_SHAPE_S for the cluster's shape before the first answer; a slurmctld
        that does not answer is not waited for longer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SHAPE_S):
                await self.parts.cluster.answered.wait()
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
