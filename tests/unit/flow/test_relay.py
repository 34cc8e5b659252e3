# SPDX-License-Identifier: Apache-2.0
"""Hooks that have the node's agent ask colocd: real sockets, real munged, a real agent process."""

import contextlib
import json
import os
import shutil
import signal
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.adapters.link import agent_socket
from slurm_coloc.adapters.link.agent_socket import AgentWire
from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.node.deliver import deliver
from tests.unit.flow.relay_rig import HOOK_S, LIMIT_S, ME, Rig, launch, until
from tests.unit.flow.test_connect import names, report
from tests.unit.link.conftest import munge_socket  # noqa: F401

USER = 65534
as_root = pytest.mark.skipif(ME != 0, reason="only root becomes another user")


@pytest.fixture
def rig(munge_socket: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:  # noqa: F811
    # Beside the whole check an agent may be scheduled later than the 0.25 s that a hook waits for
    # it. What is tested here is who answers, not when.
    monkeypatch.setattr(agent_socket, "TAKEN_PART", 0.5)
    monkeypatch.setattr(agent_socket, "TAKEN_MOST_S", HOOK_S)
    folder = Path(tempfile.mkdtemp(prefix="coloc-relay-", dir="/tmp"))
    found = Rig(folder, munge_socket)
    yield found
    found.stop()
    shutil.rmtree(folder)


def test_launch_and_report_go_through_the_agent(rig: Rig) -> None:
    rig.start_colocd()
    rig.start_agent()
    rig.linked()
    where, answer = rig.ask()
    assert (where, answer["ok"]) == (f"127.0.0.1:{rig.port} via agent", True)
    assert rig.deliver(1) == "colocd via agent"
    assert rig.jobs() == [7, 1]
    folder = rig.socket.parent.stat()
    assert (folder.st_uid, folder.st_mode & 0o777) == (ME, 0o700)


def test_hooks_make_no_connection_of_their_own(rig: Rig) -> None:
    """colocd's port takes nobody any more: what the agent has open is enough."""
    rig.start_colocd()
    rig.start_agent()
    rig.linked()
    settings = rig.settings._replace(controllers=("127.0.0.1:1",))
    assert deliver(report(1), settings, ME, HOOK_S) == "colocd via agent"


def test_without_a_colocd_the_agent_says_so_at_once(rig: Rig) -> None:
    rig.start_agent()
    told = rig.deliver(1)
    assert told.startswith("spool: agent: no link to colocd; 127.0.0.1:")
    assert names(rig.folder) == ["1.0.n1.json"]
    rig.start_colocd()
    until(lambda: not names(rig.folder), "the agent brings it")
    assert rig.jobs() == [1]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_hooks_go_their_own_way_without_the_agent(rig: Rig, number: signal.Signals) -> None:
    rig.start_colocd()
    rig.start_agent()
    rig.linked()
    assert rig.agent is not None
    rig.agent.send_signal(number)
    if number == signal.SIGKILL:
        rig.agent.wait()
    assert rig.socket.exists()
    where, answer = rig.ask()
    assert (where, answer["ok"]) == (f"127.0.0.1:{rig.port}", True)
    assert rig.deliver(2) == "colocd"
    assert rig.jobs() == [7, 2]


def test_an_agent_that_was_killed_comes_back(rig: Rig) -> None:
    rig.start_colocd()
    for _ in range(2):
        rig.start_agent()
        rig.linked()
        assert rig.deliver(1) == "colocd via agent"
        assert rig.agent is not None
        rig.agent.kill()
        rig.agent.wait()


def test_a_colocd_that_was_started_again_is_found(rig: Rig) -> None:
    first = rig.start_colocd()
    rig.start_agent()
    rig.linked()
    first.stop()
    rig.start_colocd()
    rig.linked()
    assert rig.deliver(1) == "colocd via agent"


def test_a_slow_report_holds_nothing_else_up(rig: Rig) -> None:
    colocd = rig.start_colocd()
    rig.start_agent()
    rig.linked()
    colocd.may.clear()
    found: list[str] = []
    hook = threading.Thread(target=lambda: found.append(rig.deliver(1)))
    hook.start()
    beats = colocd.beats
    until(lambda: colocd.beats > beats + 1, "heartbeats go on")
    assert rig.ask()[0].endswith("via agent")
    colocd.may.set()
    hook.join(LIMIT_S)
    assert found and not found[0].startswith("spool")


def test_what_is_not_this_nodes_is_not_passed_on(rig: Rig) -> None:
    rig.start_colocd()
    rig.start_agent()
    rig.linked()
    for request, code in (
        (b'{"v":1,"op":"launch","job_id":7,"node":"n2"}', "agent of n1"),
        (b'{"v":1,"op":"jobs","node":"n1"}', "neither launch nor report"),
        (b"[]", "neither launch nor report"),
    ):
        wire = AgentWire(rig.settings.run_dir, HOOK_S)
        with wire, pytest.raises(DaemonUnreachable, match=code):
            wire.exchange(request)
    for words in (b"", b"x\n", b"[" * 60000 + b"\n", b"\0" * 100000):
        sock = socket.socket(socket.AF_UNIX)
        with agent_socket.open_folder(rig.settings.run_dir) as fd, sock:
            sock.connect(agent_socket.address_in(fd))
            sock.sendall(words)
    assert rig.jobs() == []
    assert rig.deliver(1) == "colocd via agent"


def as_user(what: Callable[[], object]) -> None:
    """Run ``what`` in a process of nobody's."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            what()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Planted:
    """A socket in the agent's place that answers everything with ``words``, and ``holds`` the
    connection."""

    WORDS = b'{"taken":true}\n{"from":"x","answer":{"ok":true,"planted":1}}\n'

    def __init__(self, path: Path, words: bytes = WORDS, *, holds: bool = False) -> None:
        self.heard: list[bytes] = []
        self._words, self._holds = words, holds
        self._held: list[socket.socket] = []
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(str(path))
        self._sock.listen(8)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._sock.accept()
            except OSError:
                return
            with contextlib.suppress(OSError):
                peer.sendall(self._words)
                if said := peer.recv(65536):
                    self.heard.append(said)
            if self._holds:
                self._held.append(peer)
            else:
                peer.close()

    def close(self) -> None:
        self._sock.shutdown(socket.SHUT_RDWR)
        for one in (self._sock, *self._held):
            one.close()


@as_root
@pytest.mark.parametrize("how", ["folder", "link", "open", "socket"])
def test_a_planted_socket_is_not_believed(
    rig: Rig, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of the user's, a link to one, one that others may enter; another uid behind it."""
    rig.start_colocd()
    folder = rig.settings.run_dir / agent_socket.FOLDER
    folder.parent.mkdir(0o755)
    theirs = rig.folder / "theirs"
    place = theirs if how == "link" else folder
    place.mkdir(0o700)
    planted = Planted(place / agent_socket.NAME)
    if how in ("folder", "link"):
        os.chown(place, USER, USER)
    if how == "link":
        folder.symlink_to(theirs)
    if how == "open":
        folder.chmod(0o755)
    if how == "socket":  # as where the process behind it is another user's
        monkeypatch.setattr(agent_socket, "served_by", lambda _: USER)
    where, answer = rig.ask()
    assert (where, "planted" in answer) == (f"127.0.0.1:{rig.port}", False)
    assert rig.deliver(1) == "colocd"
    assert planted.heard == []
    planted.close()


def test_an_agent_that_takes_a_request_and_hangs(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its part of the hook's time, and the hook's own way the rest."""
    monkeypatch.setattr(agent_socket, "ANSWER_PART", 0.1)
    monkeypatch.setattr(agent_socket, "OWN_WAY_S", 0.9 * HOOK_S)
    rig.start_colocd()
    folder = rig.settings.run_dir / agent_socket.FOLDER
    folder.mkdir(0o700, parents=True)
    hung = Planted(folder / agent_socket.NAME, b'{"taken":true}\n', holds=True)
    assert rig.ask()[0] == f"127.0.0.1:{rig.port}"
    assert rig.deliver(1) == "colocd"
    until(lambda: len(hung.heard) == 2, "both went to it first")
    hung.close()


@as_root
def test_a_user_gets_nowhere_near_the_socket(rig: Rig) -> None:
    rig.folder.chmod(0o755)
    rig.start_colocd()
    rig.start_agent()
    rig.linked()

    def try_it() -> None:
        with pytest.raises(PermissionError):
            socket.socket(socket.AF_UNIX).connect(str(rig.socket))
        with pytest.raises(PermissionError):
            rig.socket.with_name("mine").touch()
        with pytest.raises(PermissionError):
            rig.socket.parent.rename(rig.socket.parent.with_name("away"))

    as_user(try_it)
    # Also where a socket's modes do not count: the agent asks the kernel who it is.
    with agent_socket.open_folder(rig.settings.run_dir) as fd:

        def through_the_descriptor() -> None:
            with socket.socket(socket.AF_UNIX) as sock, pytest.raises(PermissionError):
                sock.connect(agent_socket.address_in(fd))

        as_user(through_the_descriptor)
    rig.socket.chmod(0o666)
    rig.socket.parent.chmod(0o755)

    def let_in() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(LIMIT_S)
            sock.connect(str(rig.socket))
            with contextlib.suppress(ConnectionError):
                sock.sendall(b'{"v":1,"within_ms":500,"request":' + launch() + b"}\n")
                assert sock.recv(100) == b""

    as_user(let_in)
    assert rig.jobs() == []


def test_settings_name_no_key_for_it() -> None:
    named = [name for name in HookSettings._fields if "agent" in name]
    assert named == ["agent_port"]  # Prometheus's


def test_more_hooks_than_links_wait_their_turn(rig: Rig) -> None:
    """As where many jobs start in the same second."""
    rig.start_colocd()
    rig.start_agent()
    rig.linked()
    found: list[str] = []
    hooks = [threading.Thread(target=lambda: found.append(rig.ask()[0])) for _ in range(12)]
    for one in hooks:
        one.start()
    for one in hooks:
        one.join(LIMIT_S)
    assert found == [f"127.0.0.1:{rig.port} via agent"] * 12


class OnHost(socketserver.StreamRequestHandler):
    """A colocd on its Unix socket."""

    def handle(self) -> None:
        for line in self.rfile:
            self.server.heard.append(json.loads(line)["op"])  # type: ignore[attr-defined]
            self.wfile.write(b'{"v":1,"ok":true}\n')


def test_on_slurmctlds_own_host(rig: Rig) -> None:
    """The agent's link is colocd's Unix socket there."""
    rig.settings = rig.settings._replace(controllers=())
    with socketserver.ThreadingUnixStreamServer(str(rig.settings.socket), OnHost) as server:
        server.heard = heard = []  # type: ignore[attr-defined]
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        rig.start_agent()
        until(rig.via_agent, "the agent passes requests on")
        assert rig.ask()[0] == f"{rig.settings.socket} via agent"
        assert rig.deliver(1) == "colocd via agent"
        assert heard.count("report") == 1
        rig.stop()
        assert rig.ask()[0] == str(rig.settings.socket)
        server.shutdown()
