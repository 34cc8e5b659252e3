# SPDX-License-Identifier: Apache-2.0
"""Builds the emulated GPU once a session; each test gets its own node (ledger)."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import built

from .agents import Agent
from .tables import Table, laid

LIMIT_S = 60.0


@pytest.fixture(scope="session")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the emulator was built into."""
    if shutil.which("cc") is None or shutil.which("make") is None:
        pytest.skip("no C compiler or make: the emulated GPU cannot be built")
    return built.built(built.EMULATOR, built.folder(tmp_path_factory))


class Node:
    """One emulated node and the processes that a test started on it."""

    def __init__(self, build: Path, folder: Path, machine: str, *options: str) -> None:
        self.bin = build / "bin"
        self.lib = build / "lib"
        self.folder = folder
        self.ledger = folder / "ledger"
        self.env = {"COLOC_EMU_LEDGER": str(self.ledger)}
        self.started: list[subprocess.Popen[str]] = []
        self.tool(
            "coloc-emu", "init", "--machine", machine, "--uuid-seed", "t", *options, self.ledger
        )

    def tool(
        self, name: str, *args: object, check: bool = True, text: str | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of the stand-ins to its end."""
        done = subprocess.run(
            [str(self.bin / name), *map(str, args)],
            capture_output=True,
            text=True,
            input=text,
            env=self.env | env,
            timeout=LIMIT_S,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def train(self, *args: object, **env: str) -> subprocess.Popen[str]:
        """Starts a training in the background."""
        process = subprocess.Popen(
            [str(self.bin / "emu-train"), "--ramp-s", "0", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env | env,
        )
        self.started.append(process)
        return process

    def show(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.tool("coloc-emu", "show", "--json").stdout)
        return answer

    def processes(self, gpu: int = 0) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.show()["gpus"][gpu]["processes"]
        return found

    def fault(self, gpu: object, what: str) -> None:
        self.tool("coloc-emu", "fault", self.ledger, gpu, what)

    def until(self, condition: Callable[[], bool]) -> None:
        """Polls until the condition holds; fails after LIMIT_S."""
        end = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < end, f"not reached in {LIMIT_S} s: {self.show()}"
            time.sleep(0.02)

    def working(self, count: int, gpu: int = 0) -> list[dict[str, Any]]:
        """Waits until so many trainings have loaded and work on the GPU; their entries."""

        def there() -> bool:
            return len([p for p in self.processes(gpu) if p["smact"] > 0]) == count

        self.until(there)
        return self.processes(gpu)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def make_node(emulator: Path, tmp_path: Path) -> Iterator[Callable[..., Node]]:
    nodes: list[Node] = []

    def make(machine: str = "2xa100-40gb", *options: str) -> Node:
        folder = tmp_path / f"n{len(nodes)}"
        folder.mkdir()
        nodes.append(Node(emulator, folder, machine, *options))
        return nodes[-1]

    yield make
    for node in nodes:
        node.end()


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Node:
    return make_node()


@pytest.fixture
def nvml(emulator: Path) -> Callable[[Node, str], Any]:
    """Runs code with the real pynvml as n against a node; the code prints one JSON value."""
    import sys

    def run(node: Node, code: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", "import json, pynvml as n\nn.nvmlInit()\n" + code],
            capture_output=True,
            text=True,
            env={**os.environ, **node.env, "LD_LIBRARY_PATH": str(node.lib)},
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def table(make_node: Callable[..., Node]) -> Iterator[Table]:
    """A GPU and the jobs that use its MPS daemon."""
    if os.geteuid() != 0:
        pytest.skip("needs root: daemons run as their users")
    yield from laid(make_node("2xa100-40gb", "--sharing", "auto"))


@pytest.fixture
def make_agent(make_node: Callable[..., Node]) -> Iterator[Callable[..., Agent]]:
    """A function that makes an agent of a node of its own."""
    made: list[Agent] = []

    def make(machine: str = "2xa100-40gb", options: tuple[str, ...] = (), **settings: Any) -> Agent:
        made.append(Agent(make_node(machine, *options), **settings))
        return made[-1]

    yield make
    for one in made:
        one.end(signal.SIGKILL)
