# SPDX-License-Identifier: Apache-2.0
"""The MPS control daemon's stand-in, and emu-train as its client."""

import errno
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps import daemon

from .conftest import Node

QUICK = ("--memory-mib", 3000, "--smact", 0.5, "--work-s", 0.05)
LONG = ("--memory-mib", 3000, "--smact", 0.5, "--work-s", 100)


class Mps:
    """A node with a control daemon for its GPU 1 alone."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.uuid = node.show()["gpus"][1]["uuid"]
        node.folder.chmod(0o755)
        node.env["CUDA_MPS_PIPE_DIRECTORY"] = str(node.folder / "pipe")
        node.env["CUDA_MPS_LOG_DIRECTORY"] = str(node.folder / "log")
        self.pid_file = Path(node.folder / "pipe" / "nvidia-cuda-mps-control.pid")
        self.start()

    def start(self) -> None:
        self.node.tool("nvidia-cuda-mps-control", "-d", CUDA_VISIBLE_DEVICES=self.uuid)
        self.node.until(self.pid_file.exists)

    def say(self, text: str, check: bool = True) -> str:
        return self.node.tool("nvidia-cuda-mps-control", text=text + "\n", check=check).stdout

    def server(self) -> int:
        self.node.until(lambda: self.say("get_server_list") != "")
        return int(self.say("get_server_list"))

    def gone(self) -> bool:
        return "Cannot find MPS control daemon" in self.say("get_server_list", check=False)


@pytest.fixture
def mps(make_node: Callable[..., Node]) -> Iterator[Mps]:
    started = Mps(make_node("2xa100-40gb", "--sharing", "auto"))
    yield started
    if not started.gone():
        started.say("quit -t 0")
        started.node.until(started.gone)


def test_one_daemon_a_pipe_directory(mps: Mps) -> None:
    second = mps.node.tool("nvidia-cuda-mps-control", "-d", check=False)
    assert second.returncode == 1
    assert "already running" in second.stderr
    mps.say("quit")
    mps.node.until(lambda: not mps.pid_file.exists())
    assert mps.gone()


def test_its_socket_is_of_the_kind_of_nvidias(mps: Mps) -> None:
    """Driver 580.159 on an H100: SOCK_SEQPACKET; a probe of another kind finds no daemon."""
    control = str(mps.pid_file.with_name("control"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one, pytest.raises(OSError) as why:
        one.connect(control)
    assert why.value.errno == errno.EPROTOTYPE
    assert daemon.listens(mps.pid_file.parent)


def test_clients_share_and_are_listed(mps: Mps) -> None:
    pair = [mps.node.train(*LONG) for _ in range(2)]
    speeds = [p["speed"] for p in mps.node.working(2, gpu=1)]
    assert speeds == pytest.approx([1 / (1 + 1.1 * 0.5**3)] * 2, abs=1e-4)
    clients = mps.say(f"get_client_list {mps.server()}").split()
    assert sorted(clients) == sorted(str(p.pid) for p in pair)
    # One beside them without MPS takes turns with the whole server.
    mps.node.train(*LONG, CUDA_VISIBLE_DEVICES="1", CUDA_MPS_PIPE_DIRECTORY="/nonexistent")
    assert min(p["speed"] for p in mps.node.working(3, gpu=1)) < 0.6


def test_devices_are_numbered_by_the_daemon(mps: Mps) -> None:
    for visible, code in (("0", 0), (mps.uuid, 0), ("1", 1)):
        done = mps.node.train(*QUICK, CUDA_VISIBLE_DEVICES=visible)
        out, err = done.communicate(timeout=20)
        assert done.returncode == code, err
        assert code or f"gpu={mps.uuid}" in out


def test_default_memory_limit_fences_and_reads_back(mps: Mps) -> None:
    mps.say("set_default_device_pinned_mem_limit 0 2G")
    assert mps.say("get_default_device_pinned_mem_limit 0") == "2G\n"
    fenced = mps.node.train(*QUICK)
    assert "out of memory" in fenced.communicate(timeout=20)[1]
    # The default is that of servers to come; this one has its own.
    mps.say("set_default_device_pinned_mem_limit 0 4G")
    assert mps.node.train(*QUICK).wait(timeout=20) == 1
    mps.say(f"set_device_pinned_mem_limit {mps.server()} 0 4500M")
    assert mps.say(f"get_device_pinned_mem_limit {mps.server()} 0") == "4G\n", "in whole GiB"
    assert mps.node.train(*QUICK).wait(timeout=20) == 0
    # The variable may lower the limit, not raise it.
    raised = mps.node.train(*QUICK, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=9G")
    assert "fence 4500 MiB" in raised.communicate(timeout=20)[0]
    assert mps.node.train(*QUICK, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1G").wait(timeout=20) == 1


def test_a_limit_that_is_none_is_refused_and_changes_nothing(mps: Mps) -> None:
    mps.say("set_default_device_pinned_mem_limit 0 900M")
    for wrong in ("1 2G", "0 2", "0 G", "0 -1G", "0 2.5G", "x 2G"):
        assert mps.say(f"set_default_device_pinned_mem_limit {wrong}").startswith("Invalid")
    assert mps.say("get_default_device_pinned_mem_limit 0") == "900M\n"


def test_terminate_client_ends_one_and_spares_the_other(mps: Mps) -> None:
    victim, other = (mps.node.train(*LONG) for _ in range(2))
    mps.node.working(2, gpu=1)
    mps.say(f"terminate_client {mps.server()} {victim.pid}")
    assert victim.wait(timeout=20) == 1
    assert [p["pid"] for p in mps.node.working(1, gpu=1)] == [other.pid]


def test_a_dead_server_takes_its_clients(mps: Mps) -> None:
    client = mps.node.train(*LONG)
    mps.node.working(1, gpu=1)
    os.kill(mps.server(), signal.SIGKILL)
    assert client.wait(timeout=20) == 1
    assert mps.node.train(*QUICK).wait(timeout=20) == 0  # a new server serves the next


def test_a_killed_daemon_can_be_started_again(mps: Mps) -> None:
    client = mps.node.train(*LONG)
    mps.node.working(1, gpu=1)
    pid = int(mps.pid_file.read_text())
    os.kill(pid, signal.SIGKILL)
    assert client.wait(timeout=20) == 1
    assert mps.gone()
    mps.start()
    assert int(mps.pid_file.read_text()) != pid
    assert mps.node.train(*QUICK).wait(timeout=20) == 0


def test_quit_waits_for_clients_and_with_t_does_not(mps: Mps) -> None:
    client = mps.node.train(*LONG)
    mps.node.working(1, gpu=1)
    mps.say("quit")
    assert not mps.gone()
    assert mps.node.train(*QUICK).wait(timeout=20) == 1  # no new client
    mps.say("quit -t 0")
    assert client.wait(timeout=20) == 1
    mps.node.until(mps.gone)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's process needs root")
def test_another_users_client_waits(mps: Mps) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    folder = mps.node.folder
    for parent in folder.parents:
        if parent.stat().st_mode & 0o005 != 0o005 and str(parent) != "/tmp":
            parent.chmod(parent.stat().st_mode | 0o055)
    mine = mps.node.train(*LONG)
    mps.node.working(1, gpu=1)
    import subprocess

    for path in (mps.node.bin, *mps.node.bin.parents):
        if path.stat().st_mode & 0o005 != 0o005:
            path.chmod(path.stat().st_mode | 0o055)
    other = subprocess.Popen(
        ["setpriv", "--reuid=65534", "--clear-groups", str(mps.node.bin / "emu-train"),
         *map(str, QUICK), "--ramp-s", "0"],
        env=mps.node.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    mps.node.started.append(other)
    first = mps.server()
    with pytest.raises(subprocess.TimeoutExpired):
        other.wait(timeout=0.5)  # it waits as long as the first user's client lives
    assert mps.say(f"get_client_list {first}").split() == [str(mine.pid)]
    mine.terminate()
    _, err = other.communicate(timeout=20)
    assert other.returncode == 0, err
