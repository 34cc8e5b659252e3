# SPDX-License-Identifier: Apache-2.0
"""The front as colocd's main process has it: a child that is started, fed, and started again.

It is a fresh interpreter (``python -m slurm_coloc.front``) with one end of a socket pair, no fork
of this process. It ends when this process does. One that hangs is killed.
"""

import asyncio
import os
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import structlog

import slurm_coloc
from slurm_coloc.adapters.channel import Channel
from slurm_coloc.core.decide.prepared import Prepared
from slurm_coloc.daemon.for_front import ForFront
from slurm_coloc.daemon.parts import Parts
from slurm_coloc.errors import ColocError, ConfigError
from slurm_coloc.flow.submit.tickets import Key

log = structlog.get_logger()

SERVE_S = 30.0  # for the front's start on a busy machine
STATE_S = 0.25  # between two looks whether the front must be told of a change
PING_S, ANSWER_S = 10.0, 30.0  # a front that says nothing for so long hangs
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 15.0  # before a front that ended is started again
STEADY_S = 60.0  # one that served so long is started again at once
END_S = 5.0
PREPARE_S = 90.0  # longer than estimate.time_limit_ms can be
PREPARING, PREPARING_A_USER = 32, 4  # texts that are estimated for their next submission
FIGURES_AT_ONCE = 16  # nodes whose figures are sent before others get their turn


class FrontProcess:
    """The child, its channel, and the tasks that serve it."""

    def __init__(self, parts: Parts, inside: ForFront) -> None:
        self._parts, self._inside = parts, inside
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._preparing: dict[tuple[int, Key], asyncio.Task[None]] = {}

    async def begin(self) -> None:
        """Start the process; it listens nowhere yet. Raises ConfigError."""
        ours, theirs = socket.socketpair()
        package = str(Path(slurm_coloc.__file__).parents[1])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        env = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        flags = ["-P", *(["-s"] if sys.flags.no_user_site else [])]
        try:
            with theirs:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, *flags, "-m", "slurm_coloc.front",
                    str(theirs.fileno()), str(os.getpid()),
                    pass_fds=[theirs.fileno()], stdin=asyncio.subprocess.DEVNULL,
                    env=env | {"PYTHONPATH": path},
                )  # fmt: skip
        except OSError as err:
            ours.close()
            raise ConfigError(f"colocd's front does not start: {err}") from err
        self._channel = await Channel.open(ours, self._inside.answer)
        self._tasks = [asyncio.create_task(self._channel.run())]

    async def serve(self) -> None:
        """Let it listen. Raises ColocError where it cannot: ConfigError for a wrong setting."""
        assert self._channel is not None
        parts = self._parts
        config = parts.config.model_dump(mode="json", by_alias=True)
        trusted = sorted(parts.trusted)
        try:
            await self._channel.call(
                "serve", SERVE_S, config=config, trusted=trusted, state=self._inside.state()
            )
        except ColocError as err:
            if err.code == ConfigError.default_code:
                raise ConfigError(err.message) from err
            raise
        self._tasks.append(asyncio.create_task(self._feed(self._channel)))

    async def _feed(self, channel: Channel) -> None:
        """Send what has changed, and what the nodes' heartbeats said; kill a front that hangs."""
        sent, every, pinged_s = self._inside.state(), True, time.monotonic()
        while True:
            if (state := self._inside.state()) != sent and channel.send("state", **state):
                sent = state
            figures = self._parts.nodes.live.figures(every=every)
            every = False
            for number, one in enumerate(figures):
                channel.send("figures", **one)
                if number % FIGURES_AT_ONCE == FIGURES_AT_ONCE - 1:
                    await asyncio.sleep(0)
            if time.monotonic() - pinged_s >= PING_S:
                pinged_s = time.monotonic()
                try:
                    await channel.call("ping", ANSWER_S)
                except ColocError as err:
                    log.error("front", error=err.message, result="killed")
                    self._kill()
                    return
            await asyncio.sleep(STATE_S)

    def reload(self) -> None:
        """Give it the configuration that is in force now."""
        if self._channel:
            self._channel.send(
                "config", config=self._parts.config.model_dump(mode="json", by_alias=True)
            )

    def prepare(self, uid: int, key: Key, packed: str | None) -> None:
        """Have a text estimated of which a submission had no estimate, so that the next one finds
        it; beyond PREPARING, or where the front is away, it is left."""
        name = (uid, key)
        if self._channel is None or name in self._preparing or len(self._preparing) >= PREPARING:
            return
        if sum(user == uid for user, _ in self._preparing) >= PREPARING_A_USER:
            return
        task = asyncio.create_task(self._prepare(self._channel, uid, key, packed))
        self._preparing[name] = task
        task.add_done_callback(lambda _: self._preparing.pop(name, None))

    async def _prepare(self, channel: Channel, uid: int, key: Key, packed: str | None) -> None:
        given = asdict(key.given)
        try:
            made = await channel.call(
                "prepare", PREPARE_S, uid=uid, text=key.text, packed=packed, given=given
            )
            found = Prepared.read(made["prepared"])
        except ColocError as err:
            log.info("prepare", uid=uid, text=key.text[:12], error=err.message)
            return
        self._parts.texts.learn(uid, key, found, made["basis"])
        log.info("prepare", uid=uid, text=key.text[:12], result="known")

    async def keep(self) -> None:
        """Start it again whenever it has ended, until cancelled."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            if self._process is not None:
                code = await self._process.wait()
                self._drop()
                pause_s = FIRST_PAUSE_S if time.monotonic() - began > STEADY_S else pause_s
                log.error("front", result=f"ended with {code}", again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            try:
                await self.begin()
                await self.serve()
                log.info("front", result="serves again")
            except ColocError as err:
                log.error("front", error=err.message)
                self._kill()

    def _drop(self) -> None:
        """Forget the process that has ended."""
        for task in self._tasks:
            task.cancel()
        if self._channel:
            self._channel.close()
        self._tasks, self._channel, self._process = [], None, None

    def _kill(self) -> None:
        if self._process:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        """End it: in order, so that its socket is removed, or by force."""
        process, channel = self._process, self._channel
        if process is None or channel is None:
            return
        with suppress(ColocError):
            await channel.call("stop", END_S)
        self._drop()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
