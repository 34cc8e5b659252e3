# SPDX-License-Identifier: Apache-2.0
"""The port that Prometheus reads: GET /metrics over HTTP, and nothing else.

Whoever is not admitted is closed before a byte is read. A connection has a few seconds and one
request of a few KiB; few are open at one time; and the text is made once a second at most. So
nobody who can connect holds the process that measures jobs.
"""

import asyncio
import gzip
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import structlog

from slurm_coloc.adapters.prometheus.text import Writer
from slurm_coloc.core.metrics.access import Access, check, networks
from slurm_coloc.core.metrics.series import Series
from slurm_coloc.core.rates import LogLimit
from slurm_coloc.errors import ColocError, ConfigError

log = structlog.get_logger()

LIMIT_S = 5.0  # of a connection
REQUEST = 8192  # bytes
PLACES = 8  # connections at one time
KEPT_S = 1.0  # a text is given again within this time
AGAIN_S = 30.0  # between two tries to listen
TOKEN = 4096  # bytes of a token's file

Make = Callable[[], Awaitable[list[Series]]]


class Settings(NamedTuple):
    """Of [metrics]; ``port`` 0: nothing listens."""

    address: str
    port: int
    allow: tuple[str, ...]
    token_file: Path | None


class MetricsPort:
    """Listens for as long as ``run`` is awaited. ``make``: the series of now; a ColocError that it
    raises is answered as 503 with its message."""

    def __init__(self, settings: Settings, make: Make) -> None:
        self._settings = settings
        self._make = make
        self._open = 0
        self._logged = LogLimit(60.0)
        self._kept: dict[tuple[str, bool], tuple[float, bytes, str]] = {}
        self._making = asyncio.Lock()

    async def run(self) -> None:
        """Listen until cancelled. Where that cannot be the reason is logged, once, and it is tried
        again: the figures are missed, jobs are not."""
        logged = ""
        while self._settings.port:
            try:
                writer, access = Writer(), self._access()
                server = await asyncio.start_server(
                    partial(self._serve, writer, access),
                    self._settings.address,
                    self._settings.port,
                    limit=REQUEST,
                    backlog=16,
                )
            except Exception as err:  # whatever it is, the agent and colocd go on without metrics
                why = getattr(err, "message", None) or f"{type(err).__name__}: {err}"
                if why != logged:
                    logged = why
                    log.error("metrics", error=why, result="no metrics; tried again")
                await asyncio.sleep(AGAIN_S)
                continue
            log.info("metrics", address=self._settings.address, port=self._settings.port)
            async with server:
                await server.serve_forever()

    def _access(self) -> Access:
        """Raises ConfigError or ValueError where it would be open to all."""
        settings = self._settings
        check(settings.address, settings.allow, with_token=settings.token_file is not None)
        token = read_token(settings.token_file) if settings.token_file else ""
        return Access(settings.address, networks(settings.allow), token)

    async def _serve(
        self,
        writer: Writer,
        access: Access,
        reader: asyncio.StreamReader,
        out: asyncio.StreamWriter,
    ) -> None:
        found = out.get_extra_info("peername")
        if found is None or self._open >= PLACES or not access.admits(str(found[0])):
            out.transport.abort()
            self._log("refused", str(found and found[0]))
            return
        self._open += 1
        try:
            async with asyncio.timeout(LIMIT_S):
                out.write(await self._answer(writer, access, reader))
                await out.drain()
                out.close()
                await out.wait_closed()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            out.transport.abort()
        except Exception:
            out.transport.abort()
            log.exception("metrics")
        finally:
            self._open -= 1

    def _log(self, event: str, peer: str) -> None:
        untold = self._logged.take(event, time.monotonic())
        if untold is not None:
            log.warning("metrics", result=event, address=peer, untold=untold)

    async def _answer(self, writer: Writer, access: Access, reader: asyncio.StreamReader) -> bytes:
        from http.client import parse_headers  # 2 MiB that no process without a port needs

        raw = await reader.readuntil(b"\r\n\r\n")
        line, _, rest = raw.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        try:
            headers = parse_headers(BytesIO(rest))
        except Exception:  # of http.client: too many, or too long
            return _response(HTTPStatus.BAD_REQUEST)
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST)
        if not access.knows(headers.get("Authorization", "")):
            return _response(HTTPStatus.UNAUTHORIZED, ("WWW-Authenticate", "Bearer"))
        if words[1].partition("?")[0] != "/metrics":
            return _response(HTTPStatus.NOT_FOUND)
        if words[0] != "GET":
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, ("Allow", "GET"))
        packed = "gzip" in headers.get("Accept-Encoding", "")
        try:
            text, content_type = await self._text(writer, headers.get("Accept", ""), packed)
        except ColocError as err:
            return _response(HTTPStatus.SERVICE_UNAVAILABLE, text=f"{err.message}\n".encode())
        encoding = [("Content-Encoding", "gzip")] if packed else []
        return _response(HTTPStatus.OK, ("Content-Type", content_type), *encoding, text=text)

    async def _text(self, writer: Writer, accept: str, packed: bool) -> tuple[bytes, str]:
        """The text of now, or of a second ago; raises ColocError."""
        # What a client may write there has no end; what is made of it are two formats.
        key = (accept if "openmetrics" in accept else "", packed)
        async with self._making:
            kept = self._kept.get(key)
            if kept is None or time.monotonic() - kept[0] >= KEPT_S:
                text, content_type = writer.text(await self._make(), key[0])
                text = gzip.compress(text, 1) if packed else text
                if len(self._kept) >= PLACES:
                    self._kept.clear()
                kept = self._kept[key] = time.monotonic(), text, content_type
        return kept[1], kept[2]


def read_token(path: Path) -> str:
    """The token in a file; raises ConfigError where there is none, or others may read it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(TOKEN).decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"metrics.token_file: {path}: {err}") from err
    if mode & 0o007:
        raise ConfigError(f"metrics.token_file: {path}: other users may read it: chmod o-rwx")
    if not text:
        raise ConfigError(f"metrics.token_file: {path}: is empty")
    return text


def _response(status: HTTPStatus, *headers: tuple[str, str], text: bytes | None = None) -> bytes:
    body = f"{status.value} {status.phrase}\n".encode() if text is None else text
    kind = (
        ()
        if any(name == "Content-Type" for name, _ in headers)
        else (("Content-Type", "text/plain; charset=utf-8"),)
    )
    sized = (*headers, *kind, ("Content-Length", str(len(body))), ("Connection", "close"))
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n"
    return (
        head + "".join(f"{name}: {value}\r\n" for name, value in sized) + "\r\n"
    ).encode() + body
