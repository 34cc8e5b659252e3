# SPDX-License-Identifier: Apache-2.0
"""A job of observe mode carries the mark of its decision, is found by its id, and nothing else
follows: no run, no share, nothing to recover."""

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.config import Config
from slurm_coloc.core.slurm.job import JobView, decision_in, mark_in, observed_in
from slurm_coloc.flow.queries import answers
from slurm_coloc.flow.submit.decide import Decider
from slurm_coloc.flow.submit.tickets import Texts
from slurm_coloc.flow.watch.adopt import adopt
from slurm_coloc.flow.watch.watch import Watcher
from tests.unit.flow.test_after_answers import MESSAGE, OPTIONS
from tests.unit.flow.test_history import SHAPE
from tests.unit.flow.texts import teach

JOB = 41


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path)


def submitted(store: Store) -> str:
    """The AdminComment that a submission gets by default."""
    config, texts = Config(), Texts()
    decider = Decider(config, store, texts=texts)
    teach(texts, config.estimate, 1001, OPTIONS)
    answer = asyncio.run(decider.submit(MESSAGE | {"coloc": OPTIONS}, SHAPE))
    assert answer["action"] == "asis" and "observe mode" in answer["message.1"]
    assert not [name for name in answer if name.startswith(("set.", "env."))]
    return str(answer["admin_comment"])


def view(comment: str) -> JobView:
    return JobView(
        job_id=JOB, state="RUNNING", uid=1001, partition="main", admin_comment=comment
    )  # fmt: skip


def test_it_is_found_by_its_id(store: Store) -> None:
    comment = submitted(store)
    watcher = Watcher(store, cast(Any, None), cast(Any, None), lambda one: False)
    assert store.decisions.unbound(1001)
    watcher.see(view(comment))
    assert not store.decisions.unbound(1001)
    told = answers.observed(store, 1001, JOB)
    assert told is not None and told["source"] == "observe"
    assert told["decision"]["id"] == observed_in(comment)
    assert told["decision"]["memory_mib"] > 0 and told["decision"]["why"]
    assert answers.observed(store, 1002, JOB) is None  # somebody else's
    assert answers.history(store, None, {})["observed"][0]["job_id"] == JOB


def test_nothing_follows_from_it(store: Store) -> None:
    comment = submitted(store)
    mark = mark_in(comment)
    assert mark is not None and (mark.action, mark.reason, mark.shards) == ("asis", "observe", 0)
    assert decision_in(comment) is None and view(comment).decision is None
    watcher = Watcher(store, cast(Any, None), cast(Any, None), lambda one: False)
    watcher.see(view(comment))
    assert store.runs.of_job(JOB) == [] and not store.runs.goes_on_for(1001)


def test_another_colocd_does_not_take_it_over(store: Store, tmp_path: Path) -> None:
    comment = submitted(store)
    (tmp_path / "other").mkdir()
    other = Store.open(tmp_path / "other")
    assert not adopt(Config(), other, SHAPE, view(comment))
    Watcher(other, cast(Any, None), cast(Any, None), lambda one: False).see(view(comment))
    assert answers.observed(other, None, JOB) is None
