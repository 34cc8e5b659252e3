# SPDX-License-Identifier: Apache-2.0
"""colocd: answers the hook and people, follows the jobs, recovers, learns. ``coloc serve``."""

import asyncio
import logging
import os
import pwd
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from slurm_coloc.adapters import notify
from slurm_coloc.adapters.commands import SlurmCommands
from slurm_coloc.adapters.server import Message, Peer, Server
from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, load_config
from slurm_coloc.core.cluster import ClusterShape
from slurm_coloc.errors import ColocError, ConfigError, UsageFault
from slurm_coloc.flow import answers, reports
from slurm_coloc.flow.decide import Decider
from slurm_coloc.flow.explain import explain
from slurm_coloc.flow.mode import Modes
from slurm_coloc.flow.record import Recorder
from slurm_coloc.flow.recover import Recoverer
from slurm_coloc.flow.watch import Watcher

log = structlog.get_logger()

RECOVER_S = 1.0  # between two rounds while recoveries are open
DAY_S = 86400.0
PRIVILEGED = ("submit", "report", "reload")


def set_up_log(form: str, level: int = logging.INFO) -> None:
    """One line an event on stderr, as key=value or JSON; the journal adds the time."""
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.processors.LogfmtRenderer(key_order=["level", "event"])
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


def slurm_uid(config: Config) -> int:
    """uid of SlurmUser; raises ConfigError where there is no such user."""
    try:
        return pwd.getpwnam(config.daemon.slurm_user).pw_uid
    except KeyError:
        raise ConfigError(f"daemon.slurm_user: no user {config.daemon.slurm_user!r}") from None


class Daemon:
    """Everything that colocd keeps while it runs."""

    def __init__(self, config: Config, path: Path | None) -> None:
        self._path = path
        self._trusted = {0, slurm_uid(config), os.geteuid()}
        self._store = Store.open(config.daemon.state_dir)
        self._slurm = SlurmCommands(config.daemon.command_timeout_s, config.daemon.command_dir)
        self._server = Server(config.daemon.socket, self.handle, self._trusted)
        self._shape: ClusterShape | None = None
        self._recovering = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._use(config)

    def _use(self, config: Config) -> None:
        """Take a configuration into use; the socket and the database stay as they are."""
        self._config = config
        self._modes = Modes(config)
        self._decider = Decider(config, self._store)
        self._recorder = Recorder(config, self._store)
        self._watcher = Watcher(self._store, self._slurm, self._recorder)
        self._recoverer = Recoverer(
            config,
            self._store,
            self._slurm,
            lambda: self._modes.switched_off,
            self._watcher.see,
        )

    # requests

    async def handle(self, peer: Peer, message: Message) -> Message:
        """Answer one request; raises ColocError."""
        op = message.get("op")
        if op in PRIVILEGED and peer.uid not in self._trusted:
            raise UsageFault(f"{op}: uid {peer.uid} may not ask this", "not-allowed")
        seen_as = None if peer.uid in self._trusted else peer.uid
        match op:
            case "submit":
                return dict(await self._decider.submit(message, self._shape))
            case "report":
                self._look_at(reports.take(self._store, message))
                return {}
            case "reload":
                self.reload()
                return {}
            case "ping":
                return {"pid": os.getpid()}
            case "status":
                off, mode = self._modes.switched_off, self._config.mode.default
                return answers.status(self._store, self._shape, off, mode)
            case "jobs":
                await self._watcher.freshen(peer.uid)
                return answers.jobs(self._store, seen_as, message)
            case "history":
                return answers.history(self._store, seen_as, message)
            case "explain":
                if isinstance(job_id := message.get("job_id"), int):
                    await self._watcher.look(job_id, peer.uid, trusted=seen_as is None)
                return await explain(self._config, self._store, self._slurm, seen_as, message)
        raise UsageFault(f"unknown op {str(op)[:40]!r}", "bad-request")

    def reload(self) -> None:
        """Read the configuration again; a wrong file leaves the present one in force."""
        notify.reloading()
        try:
            config = load_config(self._path)
        except ConfigError as err:
            log.error("reload", error=err.message, result="the old configuration stays in force")
            raise
        finally:
            notify.ready()
        self._decider.close()
        self._use(config)
        log.info("reload", result="ok")

    # loops

    def _look_at(self, job_id: int) -> None:
        async def look() -> None:
            await self._watcher.after_report(job_id)
            self._recovering.set()

        task = asyncio.create_task(look())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _every(self, pause: Callable[[], float], what: Callable[[], Awaitable[None]]) -> None:
        """Run ``what`` for ever; a fault is logged and tried again, never the daemon's end."""
        name = what.__name__.strip("_")
        while True:
            try:
                await what()
            except ColocError as err:
                log.warning(name, error=err.message)
            except Exception:
                log.exception(name)
            await asyncio.sleep(pause())

    async def _refresh(self) -> None:
        self._shape = await self._slurm.shape()

    async def _reconcile(self) -> None:
        for job_id in reports.drain(self._store, self._config.hooks.spool_dir):
            log.info("spool", jobid=job_id)
            self._look_at(job_id)
        await self._watcher.reconcile()
        self._recovering.set()

    def _reconcile_pause(self) -> float:
        daemon = self._config.daemon
        return daemon.reconcile_s if self._store.unbound() else daemon.idle_s

    async def _forget(self) -> None:
        before_s = time.time() - self._config.daemon.history_days * DAY_S
        while self._store.forget_history(before_s):
            await asyncio.sleep(0.1)

    async def _recover(self) -> None:
        if not self._store.open_work():
            self._recovering.clear()
            await self._recovering.wait()
        await self._recoverer.round()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hup)
        await self._first_shape()
        await self._server.start()
        loops = [
            asyncio.create_task(self._every(lambda: self._config.daemon.refresh_s, self._refresh)),
            asyncio.create_task(self._every(self._reconcile_pause, self._reconcile)),
            asyncio.create_task(self._every(lambda: RECOVER_S, self._recover)),
            asyncio.create_task(self._every(lambda: DAY_S, self._forget)),
        ]
        notify.ready()
        log.info("ready", socket=str(self._config.daemon.socket), mode=self._config.mode.default)
        await self._stop.wait()
        notify.stopping()
        for task in loops:
            task.cancel()
        await self._server.stop()
        self._decider.close()
        self._store.close()
        log.info("stopped")

    async def _first_shape(self) -> None:
        """Learn the cluster before the first answer; a slurmctld that is away is not waited for."""
        try:
            await self._refresh()
        except ColocError as err:
            log.warning("refresh", error=err.message, result="jobs get whole GPUs until it answers")

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
