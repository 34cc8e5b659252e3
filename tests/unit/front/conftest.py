# SPDX-License-Identifier: Apache-2.0
"""A real colocd, both its processes, without Slurm and in the default configuration."""

import json
import os
import pwd
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.errors import DaemonUnreachable
from slurm_coloc.flow.client.request import call_socket

ADA, BEN, EVE = 65532, 65533, 65531  # uids of no rights


class Colocd:
    """A real colocd, without Slurm."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket, self.hook = folder / "colocd.sock", folder / "hook" / "colocd.sock"
        (folder / "none").mkdir()
        self.config = folder / "coloc.toml"
        user = pwd.getpwuid(os.geteuid()).pw_name
        self.config.write_text(
            f'version = 1\n[daemon]\nsocket = "{self.socket}"\nstate_dir = "{folder}/state"\n'
            f'off_file = "{folder}/off"\nslurm_user = "{user}"\ncommand_dir = "{folder}/none"\n'
            f'[hooks]\nspool_dir = "{folder}/spool"\n'
        )
        self.log = folder / "log"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "slurm_coloc", "serve"],
                env={**os.environ, "COLOC_CONFIG": str(self.config)},
                stdout=log,
                stderr=log,
            )
        until(lambda: self.process.poll() is not None or self.serves(), "colocd serves")

    def serves(self) -> bool:
        try:
            return bool(call_socket(self.socket, "ping", deadline_s=5))
        except DaemonUnreachable:
            return False

    def front(self) -> int:
        """The pid of whoever made the public socket listen."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self.socket))
            cred = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(cred[:4], sys.byteorder)


def until(check: Callable[[], Any], what: str, limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not check():
        assert time.monotonic() < end, f"not within {limit_s:g} s: {what}"
        time.sleep(0.05)


def talk(path: Path, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to messages that are sent one after the other without waiting."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(str(path))
        sock.sendall(b"".join(json.dumps({"v": 1, **one}).encode() + b"\n" for one in messages))
        lines = sock.makefile("rb")
        return [json.loads(lines.readline()) for _ in messages]


def serving() -> Iterator[Colocd]:
    """In a folder of its own: pytest closes its folders to other users whenever a run begins."""
    with tempfile.TemporaryDirectory(prefix="coloc-front-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        found = Colocd(folder)
        found.start()
        yield found
        found.process.kill()
        found.process.wait()


@pytest.fixture(scope="module")
def shared() -> Iterator[Colocd]:
    yield from serving()


@pytest.fixture
def colocd() -> Iterator[Colocd]:
    yield from serving()
