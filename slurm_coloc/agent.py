# SPDX-License-Identifier: Apache-2.0
"""The agent of a GPU node: samples of what each job uses, and a connection to the active colocd.

The samples (flow/measure/sampler) go on whether colocd can be reached or not. The connection brings
the reports that the Epilog had to spool, within seconds of its return, and says every agent.beat_s
that the node is there and how its GPUs are. Prolog and Epilog have what they want of colocd passed
on over further links (flow/node/relay). Killed at any line it loses nothing: records go on
where they were written last, and a report that goes twice replaces itself. ``coloc agent``, as
root; as SlurmUser it links and shows figures, and keeps no records.
"""

import asyncio
import os
import random
import signal
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc import __version__
from slurm_coloc.adapters import hookenv, notify, slurmconf, spool
from slurm_coloc.adapters.link.client import Me
from slurm_coloc.adapters.link.links import Opening
from slurm_coloc.adapters.link.stream import Link, UnixLink
from slurm_coloc.errors import ColocError, ConfigError, DaemonUnreachable
from slurm_coloc.flow.client.connect import STANDBY, error_code
from slurm_coloc.flow.measure.gate_watchdog import open_gate
from slurm_coloc.flow.measure.node_metrics import NodeMetrics
from slurm_coloc.flow.measure.node_setup import NodeSetup
from slurm_coloc.flow.measure.sampler import Sampler
from slurm_coloc.flow.measure.thread import Worker
from slurm_coloc.flow.node.deliver import read_spooled, settle_spooled
from slurm_coloc.flow.node.relay import Relay

log = structlog.get_logger()

POLL_S = 2.0  # between two reads of the spool: one system call
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0  # between two tries to reach a colocd
SLOW_AGAIN_S = 60.0  # a report that colocd cannot judge yet is sent again after
ALONE_S = 30.0  # without any colocd; one that is started again is back sooner
ASIDE_KEPT_S = 7 * 86400.0
DAY_S = 86400.0
SETUP_S = 10.0  # for what is installed here; slurmd -G takes 0.02 s


class Agent:
    """One node's samples and its link."""

    def __init__(self, settings: hookenv.HookSettings, node: str) -> None:
        """Raises ConfigError where there is no SlurmUser, and for anybody else."""
        self._uid = spool.uid_of(settings.slurm_user)
        if os.geteuid() not in (0, self._uid):
            raise ConfigError(f"the agent runs as root, or as SlurmUser ({settings.slurm_user})")
        self._settings = settings
        self._sampler = Sampler(settings, self._uid) if settings.sample else None
        self._me = Me(self._uid, "", node, settings.munge_socket)
        self._node = node
        self._setup = NodeSetup(os.environ, node)
        self._setup_thread = Worker("setup")
        self._relay = Relay(settings.run_dir, node)
        sampler = self._sampler
        self._metrics = NodeMetrics(
            settings,
            sampler.measurer if sampler else None,
            lambda: sampler.sampled_s if sampler else 0.0,
            self._relay.epilogs,
            lambda: len(self._names()),
        )
        self._later: dict[str, float] = {}  # reports that were refused for now, until when
        self._cleaned_s = 0.0
        self._alone_s: float | None = None  # since when (monotonic); None: linked, or done

    async def run(self) -> None:
        """Sample and link until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._link())
            group.create_task(self._relay.run())
            group.create_task(self._metrics.run())
            if self._sampler:
                group.create_task(self._sampler.run())

    async def _link(self) -> None:
        pause, logged = FIRST_PAUSE_S, ""
        self._alone_s = time.monotonic()
        while True:
            try:
                link, opening = await self._open()
                async with _ClosedAtEnd(link):
                    log.info("linked", to=link.where, node=self._me.node)
                    pause, logged = FIRST_PAUSE_S, ""
                    self._relay.linked(opening)
                    self._metrics.linked = True
                    await self._serve(link)  # until it is lost
            except DaemonUnreachable as err:
                if err.message != logged:  # the same reason is logged once
                    log.warning("link", error=err.message)
                logged = err.message
                self._relay.unlinked()
                self._metrics.linked = False
                await self._alone()
            # Jitter: a thousand agents must not come back at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    async def _alone(self) -> None:
        """After ALONE_S without a colocd, open the node's gate: its last figure must not keep jobs
        away."""
        since = self._alone_s
        if since is not None and time.monotonic() - since >= ALONE_S:
            self._alone_s = None if await asyncio.to_thread(open_gate, self._node) else since

    async def _open(self) -> tuple[Link, Opening]:
        """A link to the active colocd, of this host first, whose first heartbeat has been taken;
        and what makes another to the same colocd."""
        why: list[str] = []
        path = self._settings.socket
        here = [path] if path.exists() or not self._settings.controllers else []
        targets: list[Path | str] = [*here, *self._settings.controllers]
        for target in targets:
            opening = partial(self._link_to, target)
            try:
                link = await opening()
            except DaemonUnreachable as err:
                why.append(err.message)
                continue
            try:
                await self._beat(link)
            except DaemonUnreachable as err:
                why.append(err.message)
                await link.close()
                continue
            return link, opening
        raise DaemonUnreachable("; ".join(why))

    async def _link_to(self, target: Path | str) -> Link:
        if isinstance(target, str):
            return await Link.open(target, self._me)
        return await UnixLink.connect(target, {0, self._uid, os.geteuid()})

    async def _serve(self, link: Link) -> None:
        beat_s = self._settings.beat_s
        next_beat = time.monotonic() + beat_s
        while True:
            self._alone_s = time.monotonic()
            if not isinstance(link, UnixLink):  # there colocd takes them from the folder itself
                await self._drain(link)
            await asyncio.sleep(min(POLL_S, beat_s))
            link.check()  # hooks have no answer until there is another one
            if time.monotonic() >= next_beat or (self._sampler and self._sampler.news):
                await self._beat(link)
                next_beat = time.monotonic() + beat_s

    async def _beat(self, link: Link) -> None:
        """Send a heartbeat; raises DaemonUnreachable where a standby answers, or colocd refuses."""
        figures = self._sampler.heartbeat() if self._sampler else {}
        node = self._me.node
        figures["setup"] = await self._node_setup()
        answer = await link.call(
            "beat", node=node, version=__version__, spooled=len(self._names()), **figures
        )
        if code := error_code(answer):
            error = answer.get("error")
            text = str(error.get("message", "")) if isinstance(error, dict) else ""
            raise DaemonUnreachable(f"{link.where}: {code}: {text[:200]}")
        self._metrics.private = answer.get("private") is not False
        if self._sampler:
            self._sampler.delivered(figures)
            self._sampler.promised(answer.get("promises"))
            self._sampler.forget(answer.get("gone"))

    async def _node_setup(self) -> dict[str, Any]:
        """What is installed here. A file system or a slurmd that hangs keeps no heartbeat back."""
        try:
            return await self._setup_thread.call(self._setup.latest, SETUP_S)
        except TimeoutError:
            return {"why": f"slurmd -G or slurm.conf: no answer in {SETUP_S:g} s"}

    def _names(self) -> list[str]:
        try:
            with spool.open_dir(self._settings.spool_dir, None, self._uid) as fd:
                if time.time() - self._cleaned_s > DAY_S:
                    self._cleaned_s = time.time()
                    spool.forget_aside(fd, time.time() - ASIDE_KEPT_S)
                return spool.spooled(fd)
        except (ColocError, OSError):
            return []  # no spool yet: no report was ever spooled

    async def _drain(self, link: Link) -> None:
        """Send every spooled report; raises DaemonUnreachable."""
        now = time.monotonic()
        self._later = {name: until for name, until in self._later.items() if until > now}
        names = [name for name in self._names() if name not in self._later]
        if not names:
            return
        with spool.open_dir(self._settings.spool_dir, None, self._uid) as fd:
            for name in names:
                line = read_spooled(fd, name, self._uid)
                answer = await link.exchange(line) if line is not None else {}
                code = error_code(answer)
                if code == STANDBY:
                    raise DaemonUnreachable(f"{link.where}: standby")
                result = code or "taken"
                try:
                    taken = settle_spooled(fd, name, answer)
                except OSError as err:  # a disk that is read-only costs no more than this report
                    taken, result = False, f"cannot be removed: {err.strerror}"
                if not taken:
                    self._later[name] = now + SLOW_AGAIN_S
                log.info("report", file=name, result=result)


class _ClosedAtEnd:
    """A link that is closed at the end, whatever happens."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def __aenter__(self) -> Link:
        return self._link

    async def __aexit__(self, *_: object) -> None:
        await self._link.close()


async def _until_stopped(agent: Agent) -> None:
    task = asyncio.create_task(agent.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    notify.ready()
    try:
        await task
    except asyncio.CancelledError:
        log.info("stopped")


def serve(config: Path | None, node: str | None) -> None:
    """Run the agent in the foreground; raises ConfigError where it cannot start."""
    environ = {**os.environ, **({"COLOC_CONFIG": str(config)} if config else {})}
    name = node or os.environ.get("COLOC_NODE") or os.uname().nodename.partition(".")[0]
    asyncio.run(_until_stopped(Agent(_settings(environ), name)))


def _settings(environ: Mapping[str, str]) -> hookenv.HookSettings:
    """The settings; of a host without coloc.toml slurm.conf tells where colocd is."""
    settings = hookenv.read_settings(environ)
    if "COLOC_CONFIG" in environ or hookenv.DEFAULT_CONFIG.exists():
        return settings
    return settings._replace(
        controllers=slurmconf.controllers(environ),
        slurm_user=slurmconf.slurm_user(environ) or settings.slurm_user,
    )
