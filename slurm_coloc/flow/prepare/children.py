# SPDX-License-Identifier: Apache-2.0
"""colocd's side of the warm process: starts it, hands it texts, and starts another when it ends."""

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc.estimate.request import Defaults
from slurm_coloc.flow.prepare.limits import MAX_ANSWER, MAX_REQUEST, READY, Ended, Limits

log = structlog.get_logger()

PROGRAM = "slurm_coloc.flow.prepare.warm"  # by its name: its estimators are not loaded here
PACKAGES = Path(__file__).resolve().parents[3]
WARM_S = 30.0  # for one that starts; on an idle machine it takes half a second
#: between two starts of a warm process that ends at once; doubled each time
PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
BEYOND_S = 2.0  # by which an answer may be later than the warm process' own limit


class NoAnswer(Exception):
    """A text has no answer: ``how`` its child ended."""

    def __init__(self, how: Ended, text: str) -> None:
        super().__init__(text)
        self.how = how


class Children:
    """One warm process, kept running, and any number of texts at a time."""

    def __init__(self, defaults: Defaults, limits: Limits) -> None:
        self.limits = limits
        setup = {"defaults": defaults.as_json(), "limits": asdict(limits)}
        self._setup = json.dumps(setup).encode()
        self._control: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Of the warm process."""
        return self._process.pid if self._process else None

    async def start(self, wait_s: float) -> bool:
        """Start the warm process; whether it was ready within ``wait_s``. Never raises."""
        if self._keeping is None:
            self._keeping = asyncio.create_task(self._keep())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._ready.wait()
        return self._ready.is_set()

    async def run(self, packed: str, given: Mapping[str, Any]) -> Any:
        """The answer to one text. Raises NoAnswer."""
        line = json.dumps({"packed": packed, "given": dict(given)}).encode() + b"\n"
        if len(line) > MAX_REQUEST:
            raise NoAnswer(Ended.CRASH, "the request is too long")
        try:
            async with asyncio.timeout(self.limits.wall_s + BEYOND_S):
                await self._ready.wait()
                answer = await self._exchange(line)
        except TimeoutError:
            raise NoAnswer(Ended.AWAY, "no answer") from None
        except (OSError, ValueError) as err:
            raise NoAnswer(Ended.AWAY, f"{type(err).__name__}: {err}") from err
        if "ended" in answer:
            raise NoAnswer(Ended(answer["ended"]), str(answer.get("status", "")))
        return answer["prepared"]

    async def _exchange(self, line: bytes) -> dict[str, Any]:
        """Raises OSError, ValueError."""
        if self._control is None:
            raise ConnectionError("the estimating process has ended")
        own, other = socket.socketpair()
        try:
            with other:
                socket.send_fds(self._control, [b"text"], [other.fileno()])
            reader, writer = await asyncio.open_connection(sock=own, limit=MAX_ANSWER)
        except BaseException:
            own.close()
            raise
        try:
            writer.write(line)
            await writer.drain()
            answer = await reader.readline()
        finally:
            writer.close()
        if not answer.endswith(b"\n"):
            raise ConnectionError("the estimating process has ended")
        made = json.loads(answer)
        if not isinstance(made, dict):
            raise ValueError("an answer of another form")
        return made

    async def _keep(self) -> None:
        """Start the warm process, and another one as soon as it has ended."""
        pause_s = PAUSE_S
        while True:
            try:
                await self._start()
                pause_s = PAUSE_S
                await self._wait_for_end()
                log.warning("estimators", error="the estimating process has ended: another starts")
            except (OSError, TimeoutError) as err:
                log.error("estimators", error=f"they do not start: {type(err).__name__}: {err}")
            finally:
                self._ready.clear()
                self._kill()
                if self._control is not None:
                    self._control.close()
                    self._control = None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _start(self) -> None:
        """Raises OSError, TimeoutError."""
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = own
        own.setblocking(False)
        environment = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "PYTHONPATH": str(PACKAGES)}
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        null = asyncio.subprocess.DEVNULL
        with other:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-s", "-m", PROGRAM, str(os.getpid()),
                stdin=other.fileno(), stdout=null, stderr=null,
                env=environment, start_new_session=True, cwd="/",
            )  # fmt: skip
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(WARM_S):
            await loop.sock_sendall(own, self._setup)
            answer = await loop.sock_recv(own, 4096)
        if not answer.startswith(READY):
            raise ConnectionError("the estimating process ended at its start")
        if warning := answer.removeprefix(READY).decode(errors="replace"):
            log.warning("warm-up", error=warning)
        self._ready.set()

    async def _wait_for_end(self) -> None:
        assert self._control is not None
        await asyncio.get_running_loop().sock_recv(self._control, 1)  # it says nothing more

    def _kill(self) -> None:
        """The warm process, and with it its children."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def close(self) -> None:
        """End all, for good."""
        self._ready.clear()
        if self._keeping is not None:
            self._keeping.cancel()
        self._kill()
