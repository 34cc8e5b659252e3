# SPDX-License-Identifier: Apache-2.0
"""Runs one training after another, each in a process with a time limit, and looks at NVML while it
holds its memory."""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from estimator.measure.plan import Run
from estimator.measure.rows import Row, append, read
from slurm_coloc.adapters.nvml import Gpu, Missing

#: seconds of a run with its imports
LIMIT_S = 180.0
COMMAND = (sys.executable, "-m", "estimator.measure.child")
#: processes that wait for their run
AHEAD = 2
Look = Callable[[], Gpu]


class Children:
    """Processes that wait for their run with all imports done, which take longer than most runs.
    None touches the GPU before it has a run, so each is measured alone. A context manager."""

    def __init__(self, uuid: str, ahead: int = AHEAD, command: Sequence[str] = COMMAND) -> None:
        """``uuid``: of the GPU that they see; ``ahead``: so many are started at once."""
        self._environment = os.environ | {"CUDA_VISIBLE_DEVICES": uuid}
        self._command = command
        self._waiting = [self._start() for _ in range(ahead)]

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *args: object) -> None:
        while self._waiting:
            ended(self._waiting.pop())

    def _start(self) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._environment,
            text=True,
        )

    def given(self, run: Run) -> "subprocess.Popen[str]":
        """The one that has waited longest, with its run; another is started in its place."""
        self._waiting.append(self._start())
        child = self._waiting.pop(0)
        assert child.stdin is not None
        with suppress(BrokenPipeError):  # it has ended: its exit status says why
            child.stdin.write(f"{run.key}\n")
            child.stdin.flush()
        return child


def ended(child: "subprocess.Popen[str]") -> None:
    """Kill it, whatever it does."""
    child.kill()
    with suppress(BrokenPipeError):  # of what it never read
        child.communicate()


def measured(
    run: Run, look: Look, driver: str, children: Children, *, limit_s: float = LIMIT_S
) -> Row:
    """The row of ``run``. ``look``: the GPU as it is now; raises GpuError where it is gone."""
    before = look()
    begin = time.monotonic()
    child = children.given(run)
    try:
        answer = _answer(child, begin + limit_s)
        took = round(time.monotonic() - begin, 1)
        if answer is None:
            status = "timeout" if child.poll() is None else f"failed: exit {child.returncode}"
            return Row(run.key, status, seconds=took, driver=driver)
        if answer.get("status") != "ok":
            return Row(run.key, str(answer.get("status")), seconds=took, driver=driver)
        mib, how = _used(look(), child.pid, before)
    finally:
        ended(child)  # it only waits for us
    return Row(
        run.key,
        "ok",
        mib,
        how,
        int(answer["reserved_mib"]),
        int(answer["allocated_mib"]),
        took,
        str(answer["card"]),
        driver,
        str(answer["torch"]),
        str(answer["cuda"]),
    )


def _answer(child: subprocess.Popen[str], until: float) -> dict[str, Any] | None:
    """The child's line; None where none comes in time."""
    assert child.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        if not selector.select(max(0.0, until - time.monotonic())):
            return None
    # A line is written at once, so it is whole.
    line = child.stdout.readline()
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    with suppress(subprocess.TimeoutExpired):  # it ended, or it says what is not ours
        child.wait(timeout=10)
    return None


def _used(now: Gpu, pid: int, before: Gpu) -> tuple[int, str]:
    """MiB of the process, and how they were found. In a container NVML knows it by another number:
    then what the card has more than before, which is the same where nobody else uses it."""
    if not isinstance(now.processes, Missing):
        for process in now.processes:
            if process.pid == pid and not isinstance(process.used_mib, Missing):
                return process.used_mib, "process"
    return now.used_mib - before.used_mib, "card"


def go_on(
    runs: Iterable[Run],
    path: Path,
    one: Callable[[Run], Row],
    *,
    until: float | None = None,
    tell: Callable[[str], None] = print,
) -> list[Row]:
    """Rows of all ``runs`` that are in ``path`` or are measured until the clock (time.monotonic)
    shows ``until``. What is there is not measured again."""
    there = {row.key: row for row in read(path)}
    for run in runs:
        if run.key in there:
            continue
        if until is not None and time.monotonic() >= until:
            tell("out of time: the next call goes on from here")
            break
        row = one(run)
        append(path, row)
        there[run.key] = row
        tell(f"{len(there):4d} {run.key}: {row.status} {row.nvml_mib or ''}")
    return list(there.values())
