# SPDX-License-Identifier: Apache-2.0
"""Which jobs on whole GPUs would share, and what a user is told."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slurm_coloc.adapters.store import Store
from slurm_coloc.cli import advise as command
from slurm_coloc.cli.app import build
from slurm_coloc.core.records.observed import ObservedJob
from slurm_coloc.core.report.advice import Fit, advise
from slurm_coloc.flow.queries import report


def job(job_id: int = 1, **changes: Any) -> ObservedJob:
    """A job that had an A100 for two hours."""
    given: dict[str, Any] = {
        "job_id": job_id, "node": "g1", "since_s": 0.0, "until_s": 7200.0, "samples": 7000,
        "gpus": 1, "kind": "A100", "total_mib": 40960, "peak_mib": 9000, "smact": 0.3, "uid": 1001,
        "partition": "gpu", "submit_s": -600.0, "start_s": -10.0,
    }  # fmt: skip
    return ObservedJob(**(given | changes))


@pytest.mark.parametrize(
    ("changes", "fit", "together"),
    [
        ({}, Fit.WELL, 4),  # 9,900 MiB with the margin
        ({"peak_mib": 18_618}, Fit.WELL, 2),
        ({"peak_mib": 18_619}, Fit.LARGE, 1),
        ({"smact": 0.61}, Fit.SLOW, 4),
        ({"smact": None}, Fit.UNKNOWN, 4),
        ({"peak_mib": 100}, Fit.WELL, 8),
        ({"peak_mib": 0}, Fit.WELL, 8),
    ],
)
def test_a_job(changes: dict[str, Any], fit: Fit, together: int) -> None:
    [found] = advise([job(**changes)]).jobs
    assert (found.fit, found.together) == (fit, together)


def test_sums() -> None:
    found = advise(
        [job(1), job(2, gpus=2, smact=0.9), job(3, peak_mib=18_000), job(4, until_s=0.0)]
    )
    assert [one.job.job_id for one in found.jobs] == [2, 1, 3]
    assert (found.hours, found.share_hours, found.sharing) == (8.0, 4.0, 2)
    assert found.needed_hours == 2 / 4 + 2 / 2
    assert found.wait_s == 590.0
    assert advise([]).wait_s is None


def test_a_job_counts_once_however_often_its_node_s_agent_was_started() -> None:
    parts = [
        job(1, until_s=3600.0, peak_mib=5000),
        job(1, since_s=3700.0, until_s=7300.0, smact=None),
    ]
    [found] = advise(parts).jobs
    assert (found.hours, found.job.peak_mib, found.job.smact) == (2.0, 9000, 0.3)
    again = job(1, since_s=9000.0, until_s=9600.0, start_s=8990.0)  # put back: another run
    other = job(1, node="g2")
    assert len(advise([*parts, again, other]).jobs) == 3


def tell(monkeypatch: pytest.MonkeyPatch, *jobs: ObservedJob, args: tuple[str, ...] = ()) -> str:
    monkeypatch.setattr(command, "call", lambda *_: {"jobs": [asdict(one) for one in jobs]})
    done = CliRunner().invoke(build(), ["advise", *args])
    assert done.exit_code == 0, done.output
    return done.output


def test_what_a_user_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    text = tell(monkeypatch, job(1), job(2, smact=0.9))
    for words in (
        "2 jobs had whole GPUs for 4.0 h; 1 of them would share.",
        "their 2.0 GPU hours would have fitted into 0.5 of whole GPUs",
        "They waited 9m in the median; a share needs only a part of a GPU.",
        "keeps the GPU busy", "sbatch --coloc=model.txt",
    ):  # fmt: skip
        assert words in text, text
    assert max(map(len, text.splitlines())) <= 200


def test_nothing_to_advise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no agent measured it" in tell(monkeypatch)
    assert "leaves no room" in tell(monkeypatch, job(smact=0.9))
    assert '"share_hours": 2.0' in tell(monkeypatch, job(), args=("--json",))


def test_a_user_gets_his_own_alone(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.observed.see(job(1))
    store.observed.see(job(2, uid=1002))
    store.observed.see(job(3, until_s=50.0))
    store.observed.see(job(4, uid=None))
    assert [one["job_id"] for one in report.mine(store, 1001, {"since_s": 100})["jobs"]] == [1]
    assert report.mine(store, 0, {})["jobs"] == []
