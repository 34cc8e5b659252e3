# SPDX-License-Identifier: Apache-2.0
"""Reports with colocd up, down, hung, refusing, forged; the spool and folders that are traps."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters import spool
from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.errors import ColocError, ConfigError
from slurm_coloc.flow.node import deliver as delivering

from .conftest import USER, Answer, Listener, ok

ME = os.geteuid()


def report(job_id: int = 7, node: str = "n1") -> dict[str, Any]:
    return {"v": 1, "op": "report", "job_id": job_id, "restart": 0, "node": node}


def deliver(public: Path, body: dict[str, Any] | None = None, slurm_uid: int = ME) -> str:
    settings = HookSettings(public / "colocd.sock", spool_dir=public / "spool")
    return delivering.deliver(body or report(), settings, slurm_uid, 0.5)


def spooled(public: Path) -> list[str]:
    return sorted(file.name for file in (public / "spool").iterdir())


def test_colocd_takes_it(public: Path, listen: Callable[[Answer], Listener]) -> None:
    server = listen(ok)
    assert deliver(public) == "colocd"
    assert [json.loads(line) for line in server.lines] == [report()]
    assert not (public / "spool").exists()


def test_colocd_down_then_up(public: Path, listen: Callable[[Answer], Listener]) -> None:
    for job_id in (1, 2):
        assert deliver(public, report(job_id)).startswith("spool: ")
    assert spooled(public) == ["1.0.n1.json", "2.0.n1.json"]
    server = listen(ok)
    assert deliver(public, report(3)) == "colocd"
    assert [json.loads(line)["job_id"] for line in server.lines] == [3, 1, 2]
    assert spooled(public) == []


def test_a_second_epilog_replaces_the_first(public: Path) -> None:
    deliver(public)
    deliver(public, {**report(), "notes": ["again"]})
    assert spooled(public) == ["7.0.n1.json"]
    assert json.loads((public / "spool" / "7.0.n1.json").read_bytes())["notes"] == ["again"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: None,
        lambda _: b'{"v":1,"ok":false,"error":{"code":"x"}}\n',
        lambda _: b"not json\n",
        lambda _: b"[]\n",
        lambda _: b"x" * 100_000,
    ],
    ids=["hung", "refuses", "no json", "no object", "endless"],
)
def test_an_answer_that_is_none(
    public: Path, listen: Callable[[Answer], Listener], answer: Answer
) -> None:
    listen(answer)
    start = time.monotonic()
    assert deliver(public).startswith("spool: ")
    assert time.monotonic() - start < 2
    assert spooled(public) == ["7.0.n1.json"]


def test_a_full_backlog_does_not_block(public: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(public / "colocd.sock"))
    server.listen(0)
    waiting = []
    for _ in range(4):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        client.connect_ex(str(public / "colocd.sock"))
        waiting.append(client)
    start = time.monotonic()
    assert deliver(public).startswith("spool: ")
    assert time.monotonic() - start < 2
    for each in (*waiting, server):
        each.close()


@pytest.mark.usefixtures("as_root")
def test_a_forged_colocd_gets_nothing(public: Path, work: Path) -> None:
    """Another user who could place the socket must not see a line of somebody's log."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(work / "colocd.sock"))
        server.listen(1)
        os.write(writable, b"r")
        peer, _ = server.accept()
        os.write(writable, peer.recv(100) or b"nothing")
        os._exit(0)
    assert os.read(readable, 1) == b"r"
    settings = HookSettings(work / "colocd.sock", spool_dir=public / "spool")
    text = delivering.deliver(report(), settings, 4242, 0.5)
    assert "not by SlurmUser" in text
    assert os.read(readable, 100) == b"nothing"
    os.waitpid(pid, 0)
    os.close(readable)
    os.close(writable)


@pytest.mark.usefixtures("as_root")
def test_the_spool_belongs_to_slurmuser(public: Path) -> None:
    deliver(public, slurm_uid=4242)
    folder = (public / "spool").stat()
    file = (public / "spool" / "7.0.n1.json").stat()
    assert (folder.st_uid, folder.st_mode & 0o777) == (4242, 0o700)
    assert (file.st_uid, file.st_mode & 0o777) == (4242, 0o600)


def test_a_linked_spool_is_refused(public: Path, work: Path) -> None:
    (public / "spool").symlink_to(work)
    with pytest.raises(ConfigError, match="not a folder"):
        deliver(public)
    assert not list(work.iterdir())


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_spool_that_others_write_is_refused(public: Path, mode: int) -> None:
    (public / "spool").mkdir()
    (public / "spool").chmod(mode)
    with pytest.raises(ConfigError, match="writable by others"):
        deliver(public)


@pytest.mark.usefixtures("as_root")
def test_a_users_folder_is_no_spool(public: Path, work: Path) -> None:
    work.rename(public / "spool")
    with pytest.raises(ConfigError, match="writable by others"):
        deliver(public)


def test_planted_files_are_neither_sent_nor_followed(
    public: Path, listen: Callable[[Answer], Listener]
) -> None:
    folder = public / "spool"
    folder.mkdir(mode=0o700)
    secret = public / "secret"
    secret.write_text("secret")
    (folder / "1.0.n1.json").symlink_to(secret)
    os.mkfifo(folder / "2.0.n1.json")
    (folder / "3.0.n1.json").mkdir()
    os.link(secret, folder / "4.0.n1.json")
    (folder / "5.0.n1.json").write_bytes(b"x" * (spool.MAX_REPORT + 1))
    (folder / "README").write_text("x")
    server = listen(ok)
    assert deliver(public) == "colocd"
    assert len(server.lines) == 1
    assert secret.read_text() == "secret"


def test_a_planted_link_at_the_reports_name_is_replaced(public: Path) -> None:
    folder = public / "spool"
    folder.mkdir(mode=0o700)
    victim = public / "victim"
    victim.write_text("keep")
    (folder / "7.0.n1.json").symlink_to(victim)
    deliver(public)
    assert victim.read_text() == "keep"
    assert not (folder / "7.0.n1.json").is_symlink()


def test_a_flush_is_bounded(public: Path, listen: Callable[[Answer], Listener]) -> None:
    for job_id in range(1, delivering.MAX_FLUSH + 10):
        deliver(public, report(job_id))
    server = listen(ok)
    deliver(public, report(999))
    assert len(server.lines) == delivering.MAX_FLUSH + 1
    assert len(spooled(public)) == 9


def test_the_name_of_a_report_is_plain() -> None:
    assert spool.report_name(7, 1, "../../x y\n") == "7.1...\\.._x_y_.json".replace("\\", "_")


def test_reading_what_is_missing_or_strange(public: Path) -> None:
    (public / "d").mkdir(mode=0o755)
    with spool.open_dir(public / "d", 0o755) as fd:
        assert spool.read_file(fd, "none", {ME}) is None
        spool.write_file(fd, "own", b"x", 0o644)
        assert spool.read_file(fd, "own", {ME}) == b"x"
        with pytest.raises(ColocError):
            spool.read_file(fd, "own", {ME + 1})
        (public / "d" / "own").chmod(0o666)
        with pytest.raises(ColocError):
            spool.read_file(fd, "own", {ME})
        spool.remove_file(fd, "own")
        spool.remove_file(fd, "own")
    assert not list((public / "d").iterdir())
