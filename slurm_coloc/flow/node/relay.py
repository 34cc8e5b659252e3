# SPDX-License-Identifier: Apache-2.0
"""Agent: takes what Prolog and Epilog have for colocd, and passes it on over its own links.

The hooks then need no connection of their own, which could not be made while the network or
colocd's port is busy. Their requests have the rights that they would have themselves: root's, on
this node. Whatever goes wrong is told to the hook at once, which then goes its own way; nothing is
kept here. adapters/link/agent_socket.py describes the socket.
"""

import asyncio
import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from slurm_coloc.adapters import spool
from slurm_coloc.adapters.link import agent_socket, frames
from slurm_coloc.adapters.link.client import served_by
from slurm_coloc.adapters.link.links import Links, Opening
from slurm_coloc.core.metrics import catalog
from slurm_coloc.core.metrics.series import Histogram
from slurm_coloc.errors import ColocError, UsageFault
from slurm_coloc.flow.client.connect import STANDBY, error_code

log = structlog.get_logger()

OPS = frozenset({"launch", "report"})
HOOKS = 32  # connections at once: a node starts and ends few jobs in the same second
READ_S = 1.0  # for a hook's request, which it has ready when it connects
MOST_MS = 5000
CHECK_S = 5.0


class Relay:
    """The agent's socket for hooks."""

    def __init__(self, run_dir: Path, node: str) -> None:
        """Nothing is there yet; ``run`` makes it."""
        self._run_dir = run_dir
        self._node = node
        self._links: Links | None = None
        self._changed = asyncio.Event()
        self._hooks = 0
        self._inode = 0  # of the socket
        self.epilogs = Histogram(catalog.EPILOG.bounds)  # times of Epilogs to their reports

    def linked(self, opening: Opening) -> None:
        """There is an active colocd; ``opening`` makes a link to it."""
        self._links = Links(opening)
        self._changed.set()  # a link is opened before the first hook comes

    def unlinked(self) -> None:
        """It is lost: hooks are told so."""
        links, self._links = self._links, None
        if links:
            links.close()

    async def run(self) -> None:
        """Serve until cancelled; makes the socket again where it is gone."""
        server, logged = None, ""
        try:
            while True:
                try:
                    if server is None or not self._is_there():
                        if server:
                            server.close()
                        server = None
                        server = await self._serve()
                    if self._links:
                        await self._links.refresh()
                    logged = ""
                except Exception as err:  # not root, no room, no thread: hooks can do without
                    text = getattr(err, "message", None) or f"{type(err).__name__}: {err}"
                    if text != logged:
                        log.warning("no socket for hooks", error=text)
                    logged = text
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_S):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            if server:
                server.close()
            self.unlinked()

    def _is_there(self) -> bool:
        try:
            with agent_socket.open_folder(self._run_dir) as fd:
                return os.stat(agent_socket.NAME, dir_fd=fd).st_ino == self._inode
        except OSError:
            return False

    async def _serve(self) -> asyncio.Server:
        with spool.open_dir(self._run_dir, 0o755):
            pass
        with spool.open_dir(self._run_dir / agent_socket.FOLDER, agent_socket.FOLDER_MODE):
            pass
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with agent_socket.open_folder(self._run_dir) as fd:
                temporary = f".{os.getpid()}.tmp"
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=fd)
                sock.bind(agent_socket.address_in(fd, temporary))
                sock.listen(HOOKS)
                os.chmod(temporary, 0o600, dir_fd=fd)
                # The one before is replaced: of an agent that was killed, or that is ending.
                os.rename(temporary, agent_socket.NAME, src_dir_fd=fd, dst_dir_fd=fd)
                self._inode = os.stat(agent_socket.NAME, dir_fd=fd).st_ino
            sock.setblocking(False)
            return await asyncio.start_unix_server(self._hook, sock=sock, limit=frames.MAX_LINE)
        except BaseException:
            sock.close()
            raise

    async def _hook(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._hooks += 1
        try:
            if served_by(writer.get_extra_info("socket")) not in agent_socket.trusted():
                return
            try:
                await self._answer(reader, writer)
            except ColocError as err:
                _write(writer, error={"code": err.code, "message": err.message[:200]})
            async with asyncio.timeout(READ_S):
                await writer.drain()
        except (TimeoutError, OSError, ValueError, RecursionError):
            pass  # the hook has ended, or is none
        except Exception as err:  # the hook goes its own way
            log.error("hook", error=f"{type(err).__name__}: {err}")
        finally:
            self._hooks -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one hook; raises ColocError, also of links, with what it is told."""
        if self._hooks > HOOKS:
            raise ColocError(f"{HOOKS} hooks are connected", "busy")
        async with asyncio.timeout(READ_S):
            message = json.loads(await reader.readline())
        request, within_ms = self._checked(message)
        if isinstance(took_s := request.get("took_s"), float):
            self.epilogs.see(took_s)
        if self._links is None:
            raise ColocError("no link to colocd", "no-link")
        _write(writer, taken=True)
        passed = await self._links.exchange(json.dumps(request).encode(), within_ms / 1000)
        if error_code(passed.answer) == STANDBY:
            raise ColocError(f"{passed.where}: standby", STANDBY)
        _write(writer, **{"from": passed.where, "answer": passed.answer})

    def _checked(self, message: Any) -> tuple[dict[str, Any], int]:
        """The request and its time; raises UsageFault for what hooks of this node do not send."""
        request = message.get("request") if isinstance(message, dict) else None
        if not isinstance(request, dict) or request.get("op") not in OPS:
            raise UsageFault("neither launch nor report", "bad-request")
        if request.get("node") != self._node:
            raise UsageFault(f"this is the agent of {self._node}", "not-yours")
        within_ms = message.get("within_ms")
        if type(within_ms) is not int or not 0 < within_ms <= MOST_MS:
            raise UsageFault("within_ms is missing", "bad-request")
        return request, within_ms


def _write(writer: asyncio.StreamWriter, **fields: Any) -> None:
    writer.write(json.dumps({"v": 1, **fields}, separators=(",", ":")).encode() + b"\n")
