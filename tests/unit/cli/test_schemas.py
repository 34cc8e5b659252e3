# SPDX-License-Identifier: Apache-2.0
"""The schemas of answers: what colocd answers from a history keeps to them. (The tests on real
daemons check every answer that they are given: tests/harness/answers.)"""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from slurm_coloc.adapters.store import Store
from slurm_coloc.cli.texts.schemas import SCHEMAS
from slurm_coloc.config import Config
from slurm_coloc.core.records.runs import Run
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeShape
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.queries import answers, report
from slurm_coloc.flow.queries.figures import Figures
from slurm_coloc.flow.watch.adopt import adopt
from tests.harness.answers import as_documented

ID = "0123456789ab"
VIEW = JobView(
    7, "RUNNING", uid=1000, nodes="n1", submit_s=1.0, start_s=2.0, tres_per_node="gres/shard:12",
    admin_comment=f"coloc:1:{ID}:collocate:fits:12",
)  # fmt: skip
SHAPE = ClusterShape("c", (24, 11, 5), (NodeShape("n1", ("main",), (), "a100", 2, 78),))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(tmp_path)
    adopt(Config(), found, SHAPE, VIEW)
    found.runs.see(
        Run(decision=ID, job_id=7, restart=0, uid=1000, submit_s=1.0, state="RUNNING", node="n1",
            tres=VIEW.tres_per_node, start_s=2.0)
    )  # fmt: skip
    return found


@pytest.mark.parametrize("uid", [None, 1000, 1001])
def test_jobs_and_history(store: Store, uid: int | None) -> None:
    found = answers.jobs(store, uid, {"all": True}, private=False)
    assert as_documented(["jobs"], Figures().mark(found, uid))["jobs"]
    past = answers.history(store, uid, {})
    Figures().number(past["runs"])
    as_documented(["history"], past)


@pytest.mark.parametrize("uid", [None, 1000])
def test_a_report(store: Store, uid: int | None) -> None:
    as_documented(["report", "7"], report.report(store, uid, {"job_id": 7}, private=False))
    as_documented(["report"], report.summary(store, uid, {}))


@pytest.mark.parametrize("uid", [None, 1000, 1001])
def test_what_is_stored_of_explain(store: Store, uid: int | None) -> None:
    found = answers.explained(store, uid, answers.find(store, uid, {"job_id": 7}, private=False))
    rest: dict[str, Any] = dict.fromkeys(("live", "slurm_error", "binding", "slots"))
    rest |= {"time_limits": [], "now": {}, "setup": "", "next": ""}
    as_documented(["explain", "7"], found | rest)


def test_what_is_missing_or_of_another_type_is_refused(store: Store) -> None:
    found = Figures().mark(answers.jobs(store, None, {}, private=False), None)
    [row] = found["jobs"]
    for changes in ({"uid": "ada"}, {"open": 2}, {"gpu_uuids": "GPU-1"}):
        with pytest.raises(ValidationError):
            as_documented(["jobs"], {"jobs": [row | changes]})
    del row["peak_mib"]
    with pytest.raises(ValidationError):
        as_documented(["jobs"], found)
    assert set(SCHEMAS) >= {"jobs", "history", "gpus", "explain", "report", "doctor", "simulate"}
