# SPDX-License-Identifier: Apache-2.0
"""When a slot ends for the program in it, and how it leaves."""

import os
import random
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm_coloc.checkpoint import Checkpointer, Slot, leave, next_slot
from slurm_coloc.core.time.announce import Announced, announced


def slot(text: str, age_s: float = 0.0, **more: str) -> Slot:
    start = str(int(time.time() - age_s))
    return Slot({"COLOC_SLOT": text, "SLURM_JOB_START_TIME": start, **more})


def test_its_clock_is_the_jobs() -> None:
    assert not slot("100,10,URG").due and not slot("100,10,URG", 80).due
    assert slot("100,10,URG", 95).due
    left = slot("100,10,URG", 50).left_s
    assert left is not None and 35 < left < 45


@pytest.mark.parametrize("text", ["", "x", "10", "10,20,URG", "10,-1,URG", "nan,1,URG", "inf,x"])
def test_nonsense_is_no_slot(text: str) -> None:
    found = Slot({"COLOC_SLOT": text})
    assert not found.given and not found.due and found.left_s is None


def test_without_slurms_start_time_it_is_the_process() -> None:
    for told in ("", "soon", "0", str(int(time.time()) + 10_000)):
        found = Slot({"COLOC_SLOT": "100000,1,URG", "SLURM_JOB_START_TIME": told})
        left = found.left_s
        assert left is not None and 90_000 < left <= 100_000


def test_it_hears_its_signal_and_lets_others_hear_it() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGURG, lambda number, frame: heard.append(number))
    try:
        with slot("1000,1,URG") as mine:
            os.kill(os.getpid(), signal.SIGURG)
            assert mine.due and heard == [signal.SIGURG]
        os.kill(os.getpid(), signal.SIGURG)
        assert heard == [signal.SIGURG] * 2  # its own again
    finally:
        signal.signal(signal.SIGURG, before)


def test_a_thread_cannot_listen_and_has_the_clock() -> None:
    found: list[bool] = []

    def work() -> None:
        with slot("100,10,URG", 95) as mine:
            found.append(mine.due)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [True]


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that notes its arguments and ends with the code in ``code``."""
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexit "$(cat {tmp_path}/code)"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "code").write_text("0")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(next_slot, "KILLED_S", 0.0)
    return tmp_path


def test_it_requeues_itself(scontrol: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        leave({"SLURM_JOB_ID": "7"})
    assert left.value.code == 75
    with pytest.raises(SystemExit):
        leave({"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "8", "SLURM_ARRAY_TASK_ID": "1"})
    assert (scontrol / "asked").read_text() == "requeue 7\nrequeue 8_1\n"
    assert announced(capfd.readouterr().err.encode()) == Announced(goes_on=True)


def test_where_it_may_not_its_exit_asks(
    scontrol: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (scontrol / "code").write_text("1")
    with pytest.raises(SystemExit) as left:
        leave({"SLURM_JOB_ID": "7"})
    assert left.value.code == 75
    monkeypatch.setenv("PATH", str(scontrol / "empty"))
    with pytest.raises(SystemExit):
        leave({"SLURM_JOB_ID": "7"})
    told = capfd.readouterr().err
    assert told.count("no requeue of its own") == 2
    assert announced(told.encode()) == Announced(goes_on=True)


def test_outside_of_a_job_nobody_is_asked(scontrol: Path) -> None:
    with pytest.raises(SystemExit):
        leave({})
    assert not (scontrol / "asked").exists()


class Part:
    """What a model is to the Checkpointer."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, int]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.value = state["value"]


class Loader:
    """Draws its order when it is begun, as a DataLoader that shuffles."""

    def __iter__(self) -> Iterator[int]:
        return iter(random.sample(range(5), 5))


def test_a_loop_without_torch_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    """Every batch once and in order, however it is cut; its random numbers go on."""

    def run(path: Path, cut_at: int | None) -> list[float] | None:
        part = Part()
        random.seed(5)
        with Checkpointer(path, part=part) as mine:
            drawn = mine.extra.setdefault("drawn", [])
            try:
                for epoch in mine.epochs(3):
                    for batch in mine.batches(Loader()):
                        drawn.append(epoch * 100 + batch + random.random())
                        part.value += 1
                        if part.value == cut_at:
                            mine.slot.end()
                        mine.step()
            except SystemExit:
                return None
            assert part.value == mine.steps == 15
            return list(drawn)

    whole = run(tmp_path / "whole", None)
    assert whole is not None and len(whole) == 15
    for cut_at in (1, 4, 5, 6, 14):
        path = tmp_path / f"cut{cut_at}"
        assert run(path, cut_at) is None
        assert run(path, None) == whole, cut_at
