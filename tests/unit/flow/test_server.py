# SPDX-License-Identifier: Apache-2.0
"""One user cannot crowd the others out of colocd's socket; bad lines cost only themselves."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from slurm_coloc.adapters.server import MAX_LINE, Server, answering
from slurm_coloc.core.peer import MAX_A_USER


async def ask(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        writer.write(line)
        return await asyncio.wait_for(reader.readline(), 5)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def pong(peer: Any, message: Any) -> dict[str, Any]:
    return {"uid": peer.uid}


def serve(tmp_path: Path, trusted: set[int], use: Any) -> Any:
    async def run() -> Any:
        server = Server(tmp_path / "s", answering(pong), trusted)
        await server.start()
        try:
            return await use(tmp_path / "s")
        finally:
            await server.stop()

    return asyncio.run(run())


PING = b'{"v":1,"op":"ping"}\n'


def test_a_user_has_so_many_connections_and_gets_them_back(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        held = [await asyncio.open_unix_connection(path) for _ in range(MAX_A_USER)]
        for reader, writer in held:
            writer.write(PING)
            assert json.loads(await reader.readline())["uid"] == os.getuid()
        assert b"uid" not in await ask(path, PING)
        held[0][1].close()
        for _ in range(50):
            if b"uid" in await ask(path, PING):
                return
            await asyncio.sleep(0.05)
        raise AssertionError("a closed connection was not given back")

    serve(tmp_path, set(), use)


def test_the_trusted_are_always_let_in(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        held = [await asyncio.open_unix_connection(path) for _ in range(3 * MAX_A_USER)]
        assert await ask(path, PING)
        for _, writer in held:
            writer.close()

    serve(tmp_path, {os.getuid()}, use)


def test_bad_lines(tmp_path: Path) -> None:
    async def use(path: Path) -> None:
        for line in (b"{\n", b"[]\n", b"\xff\n", b'{"v":2}\n', b"[" * 100_000 + b"\n"):
            answer = json.loads(await ask(path, line))
            assert answer["error"]["code"] == "bad-request"
        assert await ask(path, b"x" * (MAX_LINE + 10) + b"\n") == b""
        assert await ask(path, PING)

    serve(tmp_path, set(), use)
