# SPDX-License-Identifier: Apache-2.0
"""Stage watch, pairs: what the logs of two trainings on one GPU say of their speeds is in the
database when one has ended, and a plan uses it.

On real daemons: tests/cluster/test_planned.py.
"""

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.adapters.store.pairs import MOST_OF_USER
from slurm_coloc.config import parse_config
from slurm_coloc.core.place.interference import pairs_on
from slurm_coloc.core.records.pairs import PairSpeed, training_of
from slurm_coloc.core.records.runs import PresentRun
from slurm_coloc.flow.cluster.context import Context
from slurm_coloc.flow.cluster.telemetry import GpuNow, JobThere, Live, ProgressNow
from slurm_coloc.flow.time.neighbours import Neighbours
from slurm_coloc.flow.time.pair_speeds import PairSpeeds

READ_S = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store.open(tmp_path)
    yield found
    found.close()


class Card:
    """A GPU on which trainings run; the logs tell at each look what was done."""

    def __init__(self, store: Store, read_s: int = READ_S) -> None:
        self.live = Live(store)
        config = parse_config({"agent": {"log_read_s": read_s}}, "test")
        around: Any = (config, store, None, self.live, lambda: False, lambda: None, lambda: None)
        self.pairs = PairSpeeds(Context(*around))
        self.at_s = 1e6
        self.done: dict[int, float] = {}

    def go(self, seconds: float, *, stranger: int = 0, **jobs: float) -> None:
        """So long with these trainings, by their names: parts of a run in a second."""
        for _ in range(round(seconds / READ_S)):
            runs = [_run(number, name) for number, name in enumerate("abc", 1) if name in jobs]
            there = [JobThere(job_id=run.job_id, mib=1) for run in runs]
            if stranger:
                there.append(JobThere(job_id=stranger, mib=1))
            gpu = GpuNow(uuid="GPU-1", name="A100", total_mib=1, free_mib=1, jobs=tuple(there))
            told = []
            for run in runs:
                done = self.done.get(run.job_id, 0.0)
                told.append(
                    ProgressNow(job_id=run.job_id, restart=0, at_s=self.at_s, said_s=self.at_s,
                                done=done)
                )  # fmt: skip
                self.done[run.job_id] = done + READ_S * jobs["abc"[run.job_id - 1]]
            self.live.all_progress = lambda told=told: {(one.job_id, 0): one for one in told}  # type: ignore[method-assign,misc]
            self.pairs.see(Neighbours(runs, {"GPU-1": gpu}, {}, self.at_s))
            self.at_s += READ_S


def _run(job_id: int, name: str) -> PresentRun:
    return PresentRun(
        decision=name * 12, job_id=job_id, restart=0, uid=1000, state="RUNNING",
        gpu_uuids=("GPU-1",), tres=None, start_s=1.0, end_s=None, open=True, smact=0.5,
        max_slowdown=None, mode="on", action="collocate", exclusive_tres="gres/gpu:1",
        fingerprint=name, options="{}",
    )  # fmt: skip


def test_two_trainings(store: Store) -> None:
    card = Card(store)
    card.go(1200.0, a=1e-4)
    card.go(1200.0, a=7e-5, b=1e-4)
    card.go(1200.0, b=2e-4)
    (first,) = store.pairs.newest()
    a, b = training_of("a", "{}"), training_of("b", "{}")
    assert (first.uid, first.training, first.beside) == (1000, a, b)
    assert (first.card, first.method, first.runs) == ("A100", "mps", 1.0)
    assert math.exp(first.log_speed) == pytest.approx(0.7, abs=0.01)
    card.go(READ_S)
    speeds = {one.training: math.exp(one.log_speed) for one in store.pairs.newest()}
    assert speeds == pytest.approx({a: 0.7, b: 0.5}, abs=0.01)


@pytest.mark.parametrize("read_s", [0, READ_S])
def test_what_is_left_out(store: Store, read_s: int) -> None:
    """Three on a GPU, a job that colocd does not know, and a site that reads no logs."""
    card = Card(store, read_s)
    card.go(1200.0, a=1e-4)
    card.go(1200.0, a=7e-5, b=1e-4, c=1e-4)
    card.go(1200.0, a=7e-5, b=1e-4, stranger=99)
    if not read_s:
        card.go(1200.0, a=7e-5, b=1e-4)
    card.go(READ_S)
    assert store.pairs.newest() == []


def _seen(speed: float, **changes: Any) -> PairSpeed:
    found: dict[str, Any] = {
        "uid": 1000, "training": "a", "beside": "b", "card": "A100", "method": "mps", "runs": 1.0,
        "log_speed": math.log(speed), "at_s": time.time(),
    }  # fmt: skip
    return PairSpeed(**found | changes)


def test_runs_are_taken_together(store: Store) -> None:
    for speed in (0.4, 0.9):
        store.pairs.learn(_seen(speed))
    store.pairs.learn(_seen(0.6, card="H100"))
    store.pairs.learn(_seen(0.5, uid=1001))
    found = pairs_on("A100", store.pairs.newest())
    assert 2.0 < found["1000:a", "b", "mps"].runs < 2.5, "another card's run is a part of one"
    assert found["1000:a", "b", "mps"].speed == pytest.approx(0.6)
    assert found["1001:a", "b", "mps"].speed == pytest.approx(0.5)
    for _ in range(100):
        store.pairs.learn(_seen(0.8))
    found = pairs_on("A100", store.pairs.newest())
    assert found["1000:a", "b", "mps"].speed == pytest.approx(0.79, abs=0.01)
    store.forget_history(time.time() + 1.0)
    assert store.pairs.newest() == []


def test_one_user_s_many_trainings_leave_room_for_others(store: Store) -> None:
    store.pairs.learn(_seen(0.5, uid=1001, at_s=1.0))
    for number in range(MOST_OF_USER + 50):
        store.pairs.learn(_seen(0.5, training=f"t{number}", at_s=10.0 + number))
    found = store.pairs.newest()
    assert len(found) == MOST_OF_USER + 1
    assert found[0].training == f"t{MOST_OF_USER + 49}" and found[-1].uid == 1001
