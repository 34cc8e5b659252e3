# SPDX-License-Identifier: Apache-2.0
"""What the agent puts together: hidden names, Prologs that are timed once, an agent that measures
nothing."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slurm_coloc.adapters.hookenv import HookSettings
from slurm_coloc.core.gpu.telemetry.reading import Held, Profile, Reading
from slurm_coloc.core.metrics import catalog as m
from slurm_coloc.core.metrics.series import Histogram
from slurm_coloc.flow.measure import node_metrics
from slurm_coloc.flow.measure.measure import Measurer
from slurm_coloc.flow.measure.node_metrics import NodeMetrics
from slurm_coloc.flow.measure.prolog_times import PrologTimes
from slurm_coloc.flow.measure.rolling_mean import RollingMean
from slurm_coloc.flow.node.jobs_here import Job, read_state

JOB = Job(7, 0, 0, 100.0, ("GPU-0",), "mps", 8192, account="ml")


def measuring(*jobs: Job) -> Measurer:
    """What NodeMetrics reads of a measurer, after one sample."""
    reading = Reading("GPU-0", "A100", 40960, 30000, (Held(1, 0.0, 6000, 7, 0.5),), Profile(0.5))
    rolling = RollingMean(90)
    rolling.take([reading], jobs, time.monotonic())
    return cast(
        Measurer,
        SimpleNamespace(
            jobs=lambda: list(jobs), rolling=rolling, figures=rolling.figures, idle=[],
            overruns=SimpleNamespace(over_mib=dict, count=2), prologs=PrologTimes(),
        ),
    )  # fmt: skip


def rows(metrics: NodeMetrics) -> dict[m.Metric, dict[tuple[str, ...], Any]]:
    return {one.metric: dict(one.rows) for one in asyncio.run(metrics.series())}


def of(measurer: Measurer | None, **settings: Any) -> NodeMetrics:
    chosen = HookSettings(**settings)
    return NodeMetrics(chosen, measurer, lambda: 0.0, Histogram(m.EPILOG.bounds), lambda: 3)


def test_whose_a_job_is_only_where_it_may_be_told() -> None:
    metrics = of(measuring(JOB))
    assert [labels[:3] for labels in rows(metrics)[m.JOB]] == [("7", "", "")]
    metrics.private = False
    assert [labels[:3] for labels in rows(metrics)[m.JOB]] == [("7", "root", "ml")]
    metrics.private = True  # PrivateData was set meanwhile
    assert [labels[:3] for labels in rows(metrics)[m.JOB]] == [("7", "", "")]


def test_a_user_without_a_name_is_a_number() -> None:
    metrics = of(measuring(JOB._replace(uid=987654)))
    metrics.private = False
    assert [labels[1] for labels in rows(metrics)[m.JOB]] == ["987654"]


def test_a_name_server_that_was_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = of(measuring(JOB))
    metrics.private = False
    answers = iter(["0", "root"])
    monkeypatch.setattr(node_metrics, "_name_of", lambda uid: next(answers))
    assert [labels[1] for labels in rows(metrics)[m.JOB]] == ["0"]
    assert [labels[1] for labels in rows(metrics)[m.JOB]] == ["0"]
    monkeypatch.setattr(node_metrics, "KEPT_S", -1.0)
    assert [labels[1] for labels in rows(metrics)[m.JOB]] == ["root"]


def test_what_a_job_was_promised() -> None:
    """A share; a whole GPU, of which all is its own; and what nobody has told the node."""
    for promised_mib, told in ((8192, 8192.0), (0, 40960.0), (None, None)):
        found = rows(of(measuring(JOB._replace(promised_mib=promised_mib))))
        values = list(found[m.JOB_RESERVED].values())
        assert values == ([] if told is None else [told * 2**20])


def test_what_a_hung_driver_said_last_is_not_told_as_now() -> None:
    """The jobs may have ended since; the agent's own counters go on."""
    metrics = of(measuring(JOB))
    assert rows(metrics)[m.JOB_MEMORY]
    metrics._sampled_s = lambda: time.monotonic() - 60
    found = rows(metrics)
    assert found[m.JOB] == found[m.JOB_MEMORY] == found[m.GPU_TOTAL] == {}
    assert next(iter(found[m.AGENT_AGE].values())) >= 60
    assert sum(found[m.OVERRUNS].values()) == 2


def test_an_agent_that_measures_nothing_tells_of_itself() -> None:
    found = rows(of(None))
    assert found[m.AGENT_SPOOLED] == {(): 3.0}
    assert found[m.AGENT_AGE] == found[m.JOB_MEMORY] == found[m.GPU_TOTAL] == {}


def test_a_prolog_is_counted_once_it_has_ended() -> None:
    times = PrologTimes()
    times.see([JOB], before=False)
    assert times.times.total == 0.0
    for _ in range(3):
        times.see([JOB._replace(prolog_s=0.25)], before=False)
    assert sum(times.times.counts) == 1
    times.see([], before=False)
    times.see([JOB._replace(restart=1, began_s=200.0, prolog_s=0.5)], before=False)
    assert times.times.total == 0.75


def test_prologs_from_before_the_agent_do_not_count() -> None:
    times = PrologTimes()
    times.see([JOB._replace(prolog_s=0.25)], before=True)
    times.see([JOB._replace(prolog_s=0.25)], before=False)
    assert sum(times.times.counts) == 0


def test_the_state_of_a_job_has_its_account_and_the_prologs_time(tmp_path: Path) -> None:
    state = (
        b'{"job_id": 7, "restart": 0, "uid": 5, "started_s": 1.5, "gpu": {}, "took_s": 0.03,'
        b' "reservation": {"available": true, "shards": 2, "shard_mib": 1024, "account": "ml"}}'
    )
    job = read_state(state)
    assert job is not None
    assert (job.account, job.prolog_s, job.promised_mib) == ("ml", 0.03, 2048)
    older = read_state(state.replace(b'"took_s": 0.03,', b"").replace(b', "account": "ml"', b""))
    assert older is not None
    assert (older.account, older.prolog_s) == ("", None)
