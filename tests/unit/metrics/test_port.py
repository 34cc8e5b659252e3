# SPDX-License-Identifier: Apache-2.0
"""The port that Prometheus reads, over real sockets on this host."""

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from slurm_coloc.adapters.prometheus import port as metrics_port
from slurm_coloc.adapters.prometheus.port import MetricsPort, Settings, read_token
from slurm_coloc.core.metrics import catalog as m
from slurm_coloc.core.metrics.series import Series, single
from slurm_coloc.errors import ColocError, ConfigError
from tests.harness.ports import free_port

HOST = "127.0.0.1"
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


async def told() -> list[Series]:
    return [single(m.OVERRUNS, 3.0)]


async def ask(port: int, request: bytes = GET + b"\r\n") -> bytes:
    """All that comes back; b"" where the connection was closed without a word."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(request)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


Talk = Callable[[int], Awaitable[None]]


def serve(
    talk: Talk,
    *,
    allow: tuple[str, ...] = (),
    token: Path | None = None,
    make: metrics_port.Make = told,
) -> None:
    """Have ``talk`` with a port that listens."""

    async def run() -> None:
        port = free_port()
        serving = asyncio.create_task(MetricsPort(Settings(HOST, port, allow, token), make).run())
        try:
            for _ in range(100):
                try:
                    _, writer = await asyncio.open_connection(HOST, port)
                except OSError:
                    await asyncio.sleep(0.02)
                else:
                    writer.close()
                    break
            await talk(port)
        finally:
            serving.cancel()

    asyncio.run(run())


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_prometheus_reads_it() -> None:
    async def talk(port: int) -> None:
        answer = await ask(port)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert status(answer) == 200
        assert b"Content-Type: text/plain" in head
        assert f"Content-Length: {len(body)}".encode() in head
        assert b"coloc_overruns_total 3.0" in body

    serve(talk)


def test_openmetrics_and_gzip_where_they_are_asked_for() -> None:
    async def talk(port: int) -> None:
        more = b"Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n"
        answer = await ask(port, GET + more + b"Accept-Encoding: gzip\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"Content-Type: application/openmetrics-text" in head
        assert b"Content-Encoding: gzip" in head
        assert gzip.decompress(body).endswith(b"# EOF\n")

    serve(talk)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/../etc HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", 200),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\x16\x03\x01 no http\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n", 400),
    ],
)
def test_nothing_else_is_there(request_: bytes, code: int) -> None:
    async def talk(port: int) -> None:
        assert status(await ask(port, request_)) == code

    serve(talk)


def test_a_request_without_end_is_closed() -> None:
    async def talk(port: int) -> None:
        assert await ask(port, b"GET /" + b"a" * 20000) == b""

    serve(talk)


def test_other_hosts_are_closed_before_a_byte() -> None:
    async def talk(port: int) -> None:
        assert await ask(port) == b""

    serve(talk, allow=("10.0.0.0/8",))


def test_a_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    file.chmod(0o600)

    async def talk(port: int) -> None:
        assert status(await ask(port)) == 401
        assert status(await ask(port, GET + b"Authorization: Bearer other\r\n\r\n")) == 401
        assert status(await ask(port, GET + b"Authorization: Bearer s3cret\r\n\r\n")) == 200

    serve(talk, token=file)


def test_a_token_that_others_may_read_is_none(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="No such file"):
        read_token(file)
    file.write_text("s3cret")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="other users may read it"):
        read_token(file)
    file.chmod(0o640)
    assert read_token(file) == "s3cret"
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        read_token(file)


def test_a_fault_is_said() -> None:
    async def fails() -> list[Series]:
        raise ColocError("the main process does not answer", "busy")

    async def talk(port: int) -> None:
        answer = await ask(port)
        assert status(answer) == 503
        assert answer.endswith(b"the main process does not answer\n")

    serve(talk, make=fails)


def test_few_connections_at_a_time_and_none_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_port, "LIMIT_S", 0.5)

    async def talk(port: int) -> None:
        slow = [await asyncio.open_connection(HOST, port) for _ in range(metrics_port.PLACES)]
        await asyncio.sleep(0.1)
        assert await ask(port) == b""  # no place
        for reader, _ in slow:
            assert await reader.read() == b""  # closed after its time
        assert status(await ask(port)) == 200
        for _, writer in slow:
            writer.close()

    serve(talk)


def test_the_text_is_made_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    async def count() -> list[Series]:
        made.append(1)
        return await told()

    async def talk(port: int) -> None:
        for _ in range(20):
            assert status(await ask(port)) == 200
        assert len(made) == 1

    monkeypatch.setattr(metrics_port, "KEPT_S", 3600.0)
    serve(talk, make=count)


def test_a_port_that_is_taken_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metrics_port, "AGAIN_S", 0.05)

    async def run() -> None:
        port = free_port()
        other = await asyncio.start_server(lambda r, w: w.close(), HOST, port)
        serving = asyncio.create_task(MetricsPort(Settings(HOST, port, (), None), told).run())
        await asyncio.sleep(0.3)
        other.close()
        await other.wait_closed()
        for _ in range(100):
            await asyncio.sleep(0.05)
            try:
                answer = await ask(port)
            except OSError:
                continue
            if answer:
                break
        serving.cancel()
        assert status(answer) == 200

    asyncio.run(run())
    assert capsys.readouterr().out.count("no metrics; tried again") == 1


def test_no_fault_of_the_library_ends_the_agent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The port runs beside the samples: what it raises would end them."""

    def broken() -> None:
        raise AttributeError("choose_encoder")

    monkeypatch.setattr(metrics_port, "Writer", broken)

    async def run() -> None:
        serving = asyncio.create_task(MetricsPort(Settings(HOST, 1, (), None), told).run())
        await asyncio.sleep(0.1)
        assert not serving.done()
        serving.cancel()

    asyncio.run(run())
    assert "AttributeError: choose_encoder" in capsys.readouterr().out


def test_port_0_listens_nowhere() -> None:
    async def run() -> None:
        async with asyncio.timeout(1.0):
            await MetricsPort(Settings(HOST, 0, (), None), told).run()

    asyncio.run(run())
