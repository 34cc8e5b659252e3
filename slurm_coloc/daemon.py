# SPDX-License-Identifier: Apache-2.0
"""colocd: answers the hook and people, follows the jobs, recovers, learns. ``coloc serve``.

Longer than 400 lines because all that colocd keeps is made and joined here, and nothing else is.
"""

import asyncio
import contextlib
import os
import pwd
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import structlog

from slurm_coloc.adapters import notify, slurm
from slurm_coloc.adapters.link.munge import Munge
from slurm_coloc.adapters.link.server import LinkServer
from slurm_coloc.adapters.server import Message, Server
from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config, load_config
from slurm_coloc.core.limits import NO_LIMITS
from slurm_coloc.core.peer import Peer
from slurm_coloc.errors import ColocError, ConfigError, SlurmError, UsageFault
from slurm_coloc.flow import answers, reports
from slurm_coloc.flow.adopt import adopt
from slurm_coloc.flow.decide import Decider
from slurm_coloc.flow.gate import Gate
from slurm_coloc.flow.launched import LaunchMessage, launched, read_launch
from slurm_coloc.flow.mode import Modes
from slurm_coloc.flow.nodes import Nodes
from slurm_coloc.flow.people import People
from slurm_coloc.flow.placement import Placement
from slurm_coloc.flow.record import Recorder
from slurm_coloc.flow.recover import Recoverer
from slurm_coloc.flow.role import Part, Role
from slurm_coloc.flow.seen import Seen
from slurm_coloc.flow.siblings import Resizer
from slurm_coloc.flow.slots import Slots
from slurm_coloc.flow.watch import Watcher
from slurm_coloc.logs import set_up_log

log = structlog.get_logger()

# An Epilog waits 2 s for the answer to its report.
ANSWER_S = 1.5
# A start waits so long for slurmctld; while the cluster is not known it is asked again so often.
FIRST_SHAPE_S = 2.0
RECOVER_S = 1.0  # between two rounds while recoveries are open
SLOTS_S = 1.0  # between two rounds over the jobs with time slots: two questions to the database
DAY_S = 86400.0
LOOK_S = 0.06  # of the hook's 0.2, once after slurmctld has read slurm.conf
PRIVILEGED = ("submit", "report", "launch", "beat", "reload")
OF_NODES = ("report", "launch", "beat")
NEVER_REMOTE = ("submit", "reload")  # slurmctld's hook and the admin are on this host


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
        self._slurm = slurm.connect(config.daemon)
        self._server = Server(config.daemon.socket, self.handle, self._trusted)
        self._seen = Seen(self._slurm)
        self._limits = NO_LIMITS
        self._role = Role(self._slurm)
        self._nodes = Nodes(lambda: self._seen.shape, self._trusted, self._store)
        self._link = self._listener(config)
        self._recovering = asyncio.Event()
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._use(config)

    def _listener(self, config: Config) -> LinkServer | None:
        """The network's side, where it is configured; raises MungeError without libmunge."""
        network = config.network
        if not network.listen:
            return None
        munge, answer = Munge(network.munge_socket), self._server.answer
        return LinkServer(network.listen, munge, answer, self._trusted, lambda: self._standby)

    @property
    def _standby(self) -> bool:
        return self._role.part is Part.STANDBY

    def _use(self, config: Config) -> None:
        """Take a configuration into use; the socket and the database stay as they are."""
        self._config = config
        self._modes = Modes(config)
        self._placement = Placement(
            config,
            self._store,
            self._slurm,
            self._nodes.live,
            lambda: self._modes.switched_off,
            lambda: self._seen.shape,
            lambda: self._limits,
        )
        self._decider = Decider(config, self._store, self._placement.at_submit)
        self._recorder = Recorder(config, self._store, self._seen.gpu_type)
        self._watcher = Watcher(
            self._store,
            self._slurm,
            self._recorder,
            lambda view: adopt(self._config, self._store, self._seen.shape, view),
        )
        self._recoverer = Recoverer(
            config,
            self._store,
            self._slurm,
            lambda: self._modes.switched_off,
            self._watcher.see,
            lambda: self._seen.shape,
        )
        self._gate = Gate(
            config.gate,
            self._store,
            self._slurm,
            lambda: self._modes.switched_off,
            lambda: self._seen.shape,
            self._watcher.see,
        )
        self._slots = Slots(
            config.slots,
            self._store,
            self._slurm,
            lambda: self._modes.switched_off,
            self._watcher.look_once,
        )
        self._resizer = Resizer(self._store, self._slurm, lambda: self._modes.switched_off)
        self._people = People(
            config,
            self._store,
            self._slurm,
            self._seen,
            lambda: self._limits,
            self._nodes,
            self._watcher,
        )

    # requests

    async def handle(self, peer: Peer, message: Message) -> Message:
        """Answer one request; raises ColocError."""
        op = message.get("op")
        if op in PRIVILEGED and peer.uid not in self._trusted:
            raise UsageFault(f"{op}: uid {peer.uid} may not ask this", "not-allowed")
        if peer.remote and op in NEVER_REMOTE:
            raise UsageFault(f"{op}: not over the network", "not-allowed")
        # slurmctld's own hook is answered: it runs where slurmctld is in charge.
        if self._standby and op not in ("submit", "reload", "ping", "status"):
            raise ColocError("the colocd of another controller is the active one", "standby")
        if op in OF_NODES:
            return await self._from_node(peer, str(op), message)
        seen_as = None if peer.uid in self._trusted else peer.uid
        match op:
            case "submit":
                stale = await self._seen.is_stale(message.get("loaded_ms"), LOOK_S)
                return dict(
                    await self._decider.submit(message, self._seen.shape, self._limits, stale=stale)
                )
            case "reload":
                self.reload()
                return {}
            case "ping":
                return {"pid": os.getpid()}
            case "status":
                return self._status(trusted=seen_as is None)
        found = await self._people.answer(op, peer, seen_as, message)
        if found is not None:
            return found
        raise UsageFault(f"unknown op {str(op)[:40]!r}", "bad-request")

    def _status(self, *, trusted: bool) -> Message:
        mode = "off" if self._modes.switched_off else self._config.mode.default
        return answers.status(
            self._store,
            self._seen.shape,
            seen_s=self._seen.at_s,
            mode=mode,
            role=str(self._role.part),
            now_s=time.time(),
            links=self._nodes.links() if self._link else [],
            trusted=trusted,
        )

    async def _from_node(self, peer: Peer, op: str, message: Message) -> Message:
        """Report, launch or heartbeat. A remote node speaks for itself alone; root on this host,
        who may do anything here, for every node."""
        node = None
        if peer.remote:
            if self._role.part is Part.UNKNOWN:
                raise ColocError("Slurm has not answered yet: ask again", "not-now")
            node = await self._nodes.speaker(peer)
        if op == "beat":
            return self._nodes.hear(node, peer, message)
        asked = read_launch(message) if op == "launch" else reports.read(message)
        if node is not None:
            if asked.node != node:
                raise UsageFault(f"{node} may not speak for {asked.node}", "not-yours")
            if asked.restart is None:
                raise UsageFault("report: restart: which run is it", "bad-request")
            await self._nodes.require_run(self._slurm, asked.job_id, asked.restart, node)
        if isinstance(asked, LaunchMessage):
            see = self._watcher.see
            answer = await launched(self._store, self._slurm, see, self._gate, asked)
            if answer.get("unfit"):
                self._recovering.set()
            return answer
        await self._take(asked)
        return {}

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
        self._background(self._decider.warm_up())
        log.info("reload", result="ok")

    # loops

    async def _take(self, told: reports.RunReport) -> None:
        """Take an Epilog's report. Where it tells of an out-of-memory the answer waits for the
        requeue: as long as the Epilog runs the job is COMPLETING, and one that is put back in that
        state has never failed for the jobs that depend on it."""
        reports.keep(self._store, told)
        self._recorder.late(told.job_id)
        looked = self._look_at(told.job_id)
        goes_on = told.checkpoint is not None and told.checkpoint.goes_on
        if goes_on or (told.evidence is not None and told.evidence.oom):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(looked.wait(), ANSWER_S)

    def _look_at(self, job_id: int) -> asyncio.Event:
        """Look at a job until it has left COMPLETING; the event: its recovery has begun, or there
        is none."""
        begun = asyncio.Event()

        async def look() -> None:
            try:
                await self._watcher.look_once(job_id)
                await self._recoverer.at_once(job_id)
                await self._slots.at_once(job_id)
            finally:
                begun.set()
            await self._watcher.after_report(job_id)
            await self._slots.at_once(job_id)
            self._recovering.set()

        self._background(look())
        return begun

    def _background(self, what: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(what)
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
        await self._seen.look()

    def _refresh_pause(self) -> float:
        refresh_s = self._config.daemon.refresh_s
        return refresh_s if self._seen.shape else min(FIRST_SHAPE_S, refresh_s)

    async def _read_limits(self) -> None:
        """QOS and association limits; while slurmdbd is away the last known ones hold."""
        if self._seen.shape is None:
            return
        try:
            self._limits = await self._slurm.limits(self._seen.shape.name)
        except SlurmError as err:
            if err.code != "no-accounting":
                raise
            self._limits = NO_LIMITS

    async def _look_at_role(self) -> None:
        before = self._role.part
        await self._role.look()
        if self._role.part is Part.ACTIVE and before is not Part.ACTIVE:
            if self._seen.shape is None:
                await self._refresh()
            await self._watcher.see_all()
            self._recovering.set()

    async def _reconcile(self) -> None:
        if self._standby:
            return
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

    async def _place(self) -> None:
        if not self._standby:
            await self._placement.round()

    async def _recover(self) -> None:
        store = self._store
        due = store.works.open() or store.works.raised()
        if not (due or store.open_siblings() or store.putbacks.open()):
            self._recovering.clear()
            await self._recovering.wait()
        if not self._standby:
            await self._gate.round()
            await self._recoverer.round()
            await self._resizer.round()

    async def _look_at_slots(self) -> None:
        if not self._standby:
            await self._slots.round()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. SIGHUP reloads."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._hup)
        # Asks on when the start no longer waits for its answer.
        loops = [asyncio.create_task(self._every(self._refresh_pause, self._refresh))]
        await asyncio.gather(self._decider.warm_up(), self._first_shape())
        await self._server.start()
        if self._link:
            await self._link.start()
        loops += [
            asyncio.create_task(self._every(lambda: self._role.pause_s, self._look_at_role)),
            asyncio.create_task(self._every(self._refresh_pause, self._read_limits)),
            asyncio.create_task(self._every(self._reconcile_pause, self._reconcile)),
            asyncio.create_task(self._every(lambda: RECOVER_S, self._recover)),
            asyncio.create_task(self._every(lambda: self._placement.interval_s, self._place)),
            asyncio.create_task(self._every(lambda: SLOTS_S, self._look_at_slots)),
            asyncio.create_task(self._every(lambda: DAY_S, self._forget)),
        ]
        notify.ready()
        listens = {"listen": self._config.network.listen} if self._link else {}
        mode = self._config.mode.default
        log.info("ready", socket=str(self._config.daemon.socket), mode=mode, **listens)
        await self._stop.wait()
        notify.stopping()
        for task in loops:
            task.cancel()
        await self._server.stop()
        if self._link:
            await self._link.stop()
        await self._placement.close()
        self._decider.close()
        self._store.close()
        log.info("stopped")

    async def _first_shape(self) -> None:
        """Give the cluster FIRST_SHAPE_S to be learned before the first answer; a slurmctld that is
        away is not waited for."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._seen.asked.wait(), FIRST_SHAPE_S)
        if self._seen.shape is None:
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
