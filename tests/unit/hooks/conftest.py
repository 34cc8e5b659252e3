# SPDX-License-Identifier: Apache-2.0
"""Folders that another user can reach, and that user: the hooks run as root for somebody else."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.trace import WITHOUT_TRACE, may_trace_processes

ROOT = Path(__file__).resolve().parents[3]
USER = 54321  # no account needs to exist: only numbers are dropped to


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: it drops to another user for real")


@pytest.fixture
def may_trace() -> None:
    if not may_trace_processes():
        pytest.skip(WITHOUT_TRACE)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may pass (pytest's own tmp_path is closed to others)."""
    folder = Path(tempfile.mkdtemp(prefix="coloc-hooks-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def work(public: Path) -> Path:
    """The user's work directory."""
    folder = public / "work"
    folder.mkdir()
    if os.geteuid() == 0:
        os.chown(folder, USER, USER)
    return folder


Answer = Callable[[bytes], bytes | None]


class Listener:
    """A Unix socket that takes lines and answers what it is told; None never answers."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self.lines: list[bytes] = []
        self._answer = answer
        self._sock = socket.socket(socket.AF_UNIX)
        self._sock.bind(str(path))
        self._sock.listen(4)
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._sock.accept()
            except OSError:
                return
            self._open.append(peer)
            with peer.makefile("rb") as lines:
                for line in lines:
                    self.lines.append(line)
                    reply = self._answer(line)
                    if reply is not None:
                        peer.sendall(reply)

    def close(self) -> None:
        for each in (self._sock, *self._open):
            each.close()


@pytest.fixture
def listen(public: Path) -> Iterator[Callable[[Answer], Listener]]:
    """Start a listener at <public>/colocd.sock."""
    started: list[Listener] = []

    def start(answer: Answer) -> Listener:
        started.append(Listener(public / "colocd.sock", answer))
        return started[-1]

    yield start
    for each in started:
        each.close()


def ok(_: bytes) -> bytes:
    return b'{"v":1,"ok":true}\n'


TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total"
    " capacity of 39.59 GiB of which 37.00 MiB is free.\n"
)


class Node:
    """A compute node: its folders, and a way to run a hook on it."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work
        self.program = folder / "coloc"
        self.program.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m slurm_coloc "$@"\n'
        )
        self.program.chmod(0o755)
        self.config = folder / "coloc.toml"
        self.config.write_text(
            f'version = 1\n[daemon]\nsocket = "{folder}/colocd.sock"\nslurm_user = "root"\n'
            f'[hooks]\nspool_dir = "{folder}/spool"\nrun_dir = "{folder}/run/jobs"\n'
        )
        self.env = {
            "COLOC_PROGRAM": str(self.program),
            "COLOC_CONFIG": str(self.config),
            "SPANK_COLOC_V": "1",
            "SLURM_CLUSTER_NAME": "c",
            "SLURMD_NODENAME": "n1",
            "SLURM_JOB_ID": "77",
            "SLURM_JOB_UID": str(USER),
            "SLURM_JOB_GID": str(USER),
            "SLURM_JOB_USER": "",
            "SLURM_JOB_WORK_DIR": str(work),
            "SLURM_JOB_STDIN": "/dev/null",
            "SLURM_JOB_RESTART_COUNT": "0",
            "SLURM_JOB_GPUS": "0",
        }

    def hook(self, kind: str, **changes: str) -> subprocess.CompletedProcess[str]:
        env = {**self.env, **changes}
        if kind == "epilog":
            env.setdefault("SLURM_JOB_EXIT_CODE2", "1:0")
        script = ROOT / kind / f"coloc-{kind}"
        return subprocess.run(
            [script], env=env, cwd="/", capture_output=True, text=True, timeout=30, check=False
        )

    def run(self, kind: str, **changes: str) -> str:
        done = self.hook(kind, **changes)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        return done.stderr

    def log(self, text: str, name: str = "slurm-77.out") -> Path:
        path = self.work / name
        path.write_text(text)
        os.chown(path, USER, USER)
        return path

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / "run/jobs/77.json").read_bytes())
        return state

    def report(self) -> dict[str, Any]:
        (file,) = (self.folder / "spool").glob("*.json")
        report: dict[str, Any] = json.loads(file.read_bytes())
        file.unlink()
        return report


@pytest.fixture
def node(as_root: None, public: Path, work: Path) -> Node:
    return Node(public, work)
