# SPDX-License-Identifier: Apache-2.0
"""Runs the script and writes what was recorded.

At the first batch of a loader the process forks: the copy trains with batches of twice the size and
hands its recording back, so that the sizes that grow with the batch are known.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from slurm_coloc.errors import SummaryError, UsageFault
from slurm_coloc.estimate.block.text import block, read
from slurm_coloc.summarize.cuda.devices import cuda_there
from slurm_coloc.summarize.failure import described
from slurm_coloc.summarize.jobs import Wish
from slurm_coloc.summarize.making import finished
from slurm_coloc.summarize.script.hooks import install
from slurm_coloc.summarize.script.state import State, leave
from slurm_coloc.summarize.sized import Facts, Taken, traced
from slurm_coloc.summarize.table import table

#: Writes the answer, see worker.
Answer = Callable[[dict[str, Any]], None]
COPY_S = 300.0  # the copy's time until its recording
FLAGS_WITH_VALUE = ("-W", "-X")


def run(command: Sequence[str], wish: Wish, real: bool, answer: Answer) -> None:
    """Runs ``command`` as python would. Does not return: it ends the process, or raises what the
    script raised."""
    torch.set_num_threads(1)  # a forked copy must not wait for threads that it does not have
    state = State(wish, real=real)

    def fork() -> None:
        _fork(state)

    def finish() -> None:
        _finish(state, answer)

    install(state, fork, finish)
    try:
        with cuda_there():
            _execute(list(command))
    except SystemExit as err:
        if err.code not in (None, 0):
            raise UsageFault(f"the script ended with {err.code}", "script_ended") from err
    except BaseException as err:
        fake = state.session is not None and not state.real
        answer({"error": {**described(err), "fake": fake}})
        leave(1)
    seen = "a model trained, but no optimizer" if state.roots else "no model trained and none"
    raise UsageFault(
        f"the script ended: {seen} of torch.optim stepped. Give MODULE:CALLABLE instead", "no_step"
    )


def _execute(command: list[str]) -> None:
    """As python does with these words."""
    while command and command[0].startswith("-") and command[0] not in ("-m", "-c"):
        command = command[2:] if command[0] in FLAGS_WITH_VALUE else command[1:]
    if not command or command[0] == "-c":
        raise UsageFault("give a script: coloc summarize -- python train.py ...")
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = str(Path.cwd())
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        return
    script = Path(command[0])
    if not script.is_file():
        raise UsageFault(f"{script}: no such file", "no_module")
    sys.argv = command
    sys.path[0] = str(script.resolve().parent)
    runpy.run_path(str(script), run_name="__main__")


def _fork(state: State) -> None:
    """The copy goes on with twice the batch; this process waits for what it records."""
    inlet, outlet = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inlet)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        state.factor, state.pipe = 2, outlet
        return
    os.close(outlet)
    text = _all_of(inlet)
    if not text:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if text:
        size = state.wanted(state.batch) * 2
        state.second = (size, text)


def _all_of(inlet: int) -> str:
    """Everything until the other side closes; empty where it takes too long."""
    parts: list[bytes] = []
    until = time.monotonic() + COPY_S
    with os.fdopen(inlet, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return ""
            part = pipe.read(1 << 16)
            if not part:
                return b"".join(parts).decode("ascii", "replace")
            parts.append(part)


def _finish(state: State, answer: Answer) -> None:
    """Write the answer and end the process."""
    try:
        recording = state.recording()
        facts, notes = state.facts()
        size = state.wanted(state.batch) if state.batch else facts.batch
        taken = Taken(size, recording)
        if state.pipe is not None:
            alone = traced(taken, None, Facts(size, torch=torch.__version__))
            _write(state.pipe, block(alone))
            leave(0)
        tables = _tables(state)
        made = finished(tables, taken, _second(state), facts)
        notes = [*notes, *made.notes]
        if not state.batch:
            known = f"taken to be {facts.batch}, as the inputs begin"
            if not state.leading() or state.wish.batch_size:
                known = f"not known, and counts as {facts.batch}"
            notes.append(f"no DataLoader: the batch size is {known}")
        answer({"text": made.text, "notes": notes})
    except BaseException as err:
        if state.pipe is None:
            answer({"error": described(err)})
        leave(1)
    leave(0)


def _write(pipe: int, text: str) -> None:
    data = text.encode("ascii")
    while data:
        data = data[os.write(pipe, data) :]


def _second(state: State) -> Taken | None:
    """What the copy recorded."""
    if state.second is None:
        return None
    size, text = state.second
    try:
        return Taken(size, read(text.splitlines()).at(size))
    except SummaryError:
        return None


def _tables(state: State) -> list[str]:
    """A table a model, made on fake tensors where the recording was."""
    assert state.session is not None
    state.session.__exit__()
    return [table(root.module, root.args, root.keywords) for root in state.roots.values()]
