# SPDX-License-Identifier: Apache-2.0
"""A neighbour that ended a run by holding too much: named, counted, and kept from sharing where the
site wants that; the run that it ended comes back as if nothing had been."""

import time
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.cli.jobs import why_of
from slurm_coloc.cli.tries import tries
from slurm_coloc.config import Config
from slurm_coloc.core.records.lists import Recovery
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.nodes import epilog
from slurm_coloc.flow.queries import answers
from slurm_coloc.flow.submit.site_rules import held_more
from slurm_coloc.flow.watch.record import Recorder
from tests.unit.flow.test_store import DECISION, decision, report, run_row

ADA, BEN = 1000, 1001
BENS = "ba9876543210"
GPU = "GPU-5a3b1c2d-0000-1111-2222-333344445555"
#: PyTorch's own words when ada's job met the card that ben's had filled
LOG = {
    "oom": True,
    "kind": "cuda_oom",
    "line": "CUDA out of memory. Tried to allocate 512.00 MiB.",
    "requested_mib": 512,
    "capacity_mib": 40540,
    "free_mib": 96,
    "in_use_mib": 4813,
    "others_mib": 35533,
}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Ada's job 7 has 10 GiB by MPS; ben's job 9 was promised 6, and MPS cannot hold it."""
    found = Store.open(tmp_path)
    found.decisions.add(decision(shards=10))
    found.decisions.add(decision(id=BENS, uid=BEN, shards=6, fingerprint="g"))
    found.runs.see(run_row(tres="gres/shard:10"))
    found.runs.see(run_row(decision=BENS, job_id=9, uid=BEN, tres="gres/shard:6"))
    return found


def used(foreign: int = 0, **neighbours: int) -> dict[str, Any]:
    """Ada's record of use at its end."""
    now = time.time()
    return {
        "v": 1,
        "job_id": 7,
        "restart": 0,
        "since_s": now - 60,
        "until_s": now,
        "samples": 60,
        "complete": True,
        "gpus": [{"uuid": GPU, "peak_mib": 4813}],
        "last": {
            "at_s": now - 0.5,
            "held_mib": 4813,
            "gpu_free_mib": 96,
            "foreign_mib": foreign,
            "neighbours": [
                {"job_id": int(name[1:]), "held_mib": mib} for name, mib in neighbours.items()
            ],
        },
    }


def end_ada(store: Store, use: dict[str, Any], restart: int = 0) -> None:
    body = report(
        restart=restart, evidence=LOG, method="mps", gpu_uuids=[GPU], exit_code=1, signal=0,
        ended_s=time.time(), used=use,
    )  # fmt: skip
    epilog.take(store, body)
    [run] = [one for one in store.runs.open() if one.job_id == 7]
    recorder = Recorder(Config(), store)
    recorder.end(run, Outcome.OOM_GPU, JobView(7, "FAILED", exit_code=1), recorder.report_on(run))


def recovery(store: Store) -> Recovery:
    [found] = store.recoveries.open()
    return found


def events(store: Store, job_id: int, decision_id: str = DECISION) -> dict[str, str]:
    return {one.kind: one.text for one in store.events(decision_id, job_id)}


def test_the_victim_of_another_users_unfenced_job(store: Store) -> None:
    end_ada(store, used(j9=35533))
    run = store.runs.of_job(7)[0]
    assert (run.blame, run.verdict) == ("neighbour", "requeue-victim")
    work = recovery(store)
    assert (work.way, work.tres, work.avoid) == ("same", "gres/shard:10", "n1")
    assert store.runs.oom_share_mib("f", "o", ADA) is None, "nothing against her model"
    assert store.peaks.of_model(ADA, "f", "o") == []
    told = events(store, 7)
    assert "job 9 held 28.7 GiB more than it was promised" in told["blame"]
    assert "its own limit" not in told["ended"]


def test_the_culprit_is_named_and_counted_once(store: Store) -> None:
    end_ada(store, used(j9=35533))
    store.runs.see(run_row(tres="gres/shard:10", restart=1))
    [ben] = store.runs.of_job(9)
    assert store.culprits.victims_of(ben) == 1
    assert events(store, 9, BENS)["culprit"] == (
        "held 34.7 GiB of 6.0 promised; another user's job on the same GPU ran out of memory by it"
    )
    ada = answers.explained(store, None, answers.find(store, None, {"job_id": 7}, False))
    assert ada["runs"][0]["culprit"] == {"job_id": 9, "held_mib": 35533, "promised_mib": 6144}
    [line] = [text for _, text in tries(ada["decision"], ada["runs"])]
    assert "caused by a neighbour, job 9 with 34.7 GiB of 6.0 promised" in line
    rows = {row["job_id"]: row for row in answers.jobs(store, None, {}, False)["jobs"]}
    assert why_of(rows[9]) == "held more than its share, ended 1"
    assert why_of(rows[7]) == "same again (neighbour 9)"
    hidden = answers.jobs(store, ADA, {"all": True}, False)["jobs"]
    assert {row["victims"] for row in hidden if row["uid"] == BEN} == {None}


def test_the_victim_of_a_process_of_no_job(store: Store) -> None:
    end_ada(store, used(foreign=35533))
    run = store.runs.of_job(7)[0]
    assert (run.blame, recovery(store).way) == ("foreign", "same")
    assert store.runs.oom_share_mib("f", "o", ADA) is None
    assert store.culprits.newest(BEN, "g") is None


def test_a_full_gpu_that_nobody_was_seen_to_fill(store: Store) -> None:
    """The neighbour took the last of it after the agent's sample: the log alone tells."""
    use = used(j9=6000)
    use["last"]["gpu_free_mib"] = 29000
    end_ada(store, use)
    run = store.runs.of_job(7)[0]
    assert (run.blame, recovery(store).way) == ("full-gpu", "same")
    assert "by its log other processes held 34.7 GiB" in events(store, 7)["blame"]
    assert store.culprits.newest(BEN, "g") is None


def test_a_neighbour_that_its_agent_saw_overrun(store: Store) -> None:
    """Without that a job may hold a context beside what its fence counts."""
    end_ada(store, used(j9=7000))
    assert store.runs.of_job(7)[0].blame == "full-gpu"
    store.runs.see(run_row(tres="gres/shard:10", restart=1))
    store.note(BENS, 9, "overrun", "holds 6.8 GiB of 6.0 promised")
    use = used(j9=7000) | {"restart": 1}
    end_ada(store, use, restart=1)
    assert store.runs.of_job(7)[1].blame == "neighbour"


def test_the_culprit_is_the_run_that_was_there(store: Store) -> None:
    """Ben's job ran out as well, and has a whole GPU elsewhere before ada's has ended."""
    now = time.time()
    [ben] = store.runs.of_job(9)
    store.runs.change(ben, start_s=now - 60)
    store.runs.close(ben, outcome="oom-gpu", end_s=now - 1)
    store.runs.see(run_row(decision=BENS, job_id=9, restart=1, uid=BEN, tres="gres/gpu:1",
                           start_s=now + 5))  # fmt: skip
    end_ada(store, used(j9=35533))
    assert store.runs.of_job(7)[0].blame == "neighbour"
    assert [store.culprits.victims_of(run) for run in store.runs.of_job(9)] == [1, 0]


def test_a_culprits_model_does_not_share_for_a_while_where_the_site_wants_that(
    store: Store,
) -> None:
    end_ada(store, used(j9=35533))
    now = time.time()

    def why(uid: int, model: str | None, later_h: float = 0, culprit: str = "exclusive") -> str:
        config = Config.model_validate({"blame": {"culprit": culprit, "exclusive_h": 24}})
        return held_more(config.blame, store, uid, model, now + later_h * 3600)

    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(now + 24 * 3600))
    assert why(BEN, "g").startswith("job 9, 34.7 GiB of 6.0 promised; until ")
    assert until[:10] in why(BEN, "g")
    assert why(BEN, "g", later_h=23.9) and not why(BEN, "g", later_h=24.1)
    assert not why(BEN, "other") and not why(BEN, None) and not why(ADA, "g")
    assert not why(BEN, "g", culprit="tell")


def test_culprits_are_forgotten_with_their_decisions(store: Store) -> None:
    end_ada(store, used(j9=35533))
    [ben] = store.runs.of_job(9)
    store.runs.close(ben, outcome="completed", end_s=time.time())
    store.forget_history(time.time() + 10)
    assert store.culprits.newest(BEN, "g") is None
