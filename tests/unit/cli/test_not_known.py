# SPDX-License-Identifier: Apache-2.0
"""What people are told of a job is so, or it says that it is not known."""

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.cli import explain as explain_page
from slurm_coloc.cli import report as report_page
from slurm_coloc.cli.jobs import name_of
from slurm_coloc.cli.render import share
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.errors import UsageFault
from slurm_coloc.estimate.answer import Site as GpuSite
from slurm_coloc.estimate.answer import answer as estimate_answer
from slurm_coloc.estimate.api import TrainingOptions
from slurm_coloc.estimate.replay.stack import Stack
from slurm_coloc.flow.queries import answers
from slurm_coloc.flow.queries import report as report_flow
from slurm_coloc.flow.queries.dispatch import unknown_job
from slurm_coloc.flow.queries.explain import present, setup_text
from slurm_coloc.flow.watch.watch import Watcher
from tests.cluster.jobs import mlp_summary
from tests.unit.cli.conftest import NOW, OWNER, decision, run_row
from tests.unit.cli.test_report import close, used

NAME = "0000000000a5"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(tmp_path)
    found.decisions.add(decision(NAME, partition=None, account=None))
    return found


def explained(store: Store, job_id: int = 5, **changes: Any) -> dict[str, str]:
    """`coloc explain` of a job as its lines; without Slurm."""
    found = answers.find(store, OWNER, {"job_id": job_id}, False)
    decided, run = found.decision, found.runs[-1]
    told = {
        **answers.explained(store, OWNER, found),
        "live": None, "slurm_error": None, "time_limits": [], "binding": None, "next": "nothing",
        "now": present(decided, run, None), **changes,
    }  # fmt: skip
    told["decision"]["why"] = "the estimate fits beside other jobs"
    return {name: str(text) for name, text in explain_page._lines(told)}


def limit(**changes: Any) -> dict[str, Any]:
    return {
        "restart": 0, "base_s": 3600.0, "set_s": None, "lost_s": 600.0, "speed": 0.342,
        "others": 4, "times": 0, "state": "open", "note": "",
    } | changes  # fmt: skip


def test_the_slowdown_of_a_run_that_has_ended_is_not_of_now(store: Store) -> None:
    store.runs.see(run_row(NAME, 5))
    assert explained(store, time_limits=[limit()])["Slowdown"] == (
        "about 2.92x now, beside 4, by the model of interference"
    )
    close(store, run_row(NAME, 5))
    told = explained(store, time_limits=[limit()])["Slowdown"]
    assert "now" not in told and told == "10 min lost beside others"


def test_the_slowdown_of_the_first_seconds_is_not_told(store: Store) -> None:
    """Who is not known yet counts as busy, which is a bound and no figure."""
    store.runs.see(run_row(NAME, 5, start_s=time.time() - 20))
    assert explained(store, time_limits=[limit()])["Slowdown"] == "not known"
    close(store, run_row(NAME, 5, start_s=time.time() - 20))
    told = explained(store, time_limits=[limit(lost_s=13.0)])["Slowdown"]
    assert told == "at most 13 s lost beside others"


def slotted(**changes: Any) -> dict[str, Any]:
    return {
        "length_s": 14400, "signal": "URG", "signal_at_s": None, "left_s": 86400.0,
        "state": "open", "ended": 2, "used_s": 28800.0, "signalled_s": None, "behind_s": None,
    } | changes  # fmt: skip


def test_time_slots_are_told_with_what_comes_next(store: Store) -> None:
    store.runs.see(run_row(NAME, 5))
    assert "Time slots" not in explained(store, slots=None)
    at_s = datetime(2026, 3, 1, 14, 30).timestamp()
    told = "each 4 h; 2 ended, 1d00h left with the present one"
    for changes, next_one in (
        ({"signal_at_s": at_s}, "; SIGURG at 2026-03-01 14:30:00"),
        ({"signalled_s": at_s}, "; SIGURG was sent at 2026-03-01 14:30:00"),
        ({"behind_s": at_s}, "; waits behind others of its priority since 2026-03-01 14:30:00"),
        ({"state": "dropped", "signalled_s": at_s}, "; no more: it did not leave at a slot's end"),
        ({}, ""),
    ):
        line = explained(store, slots=slotted(**changes))["Time slots"]
        assert line.startswith(told + next_one) and (next_one or line == told), line


def test_the_size_after_the_owner_changed_it(store: Store) -> None:
    store.runs.see(run_row(NAME, 5, tres="gres/gpu:1"))
    told = explained(store)["Why this size"]
    assert told.startswith("a whole GPU now (gres/gpu:1): its request was changed since")
    assert "at submission: shares a GPU" in told
    store.runs.see(run_row(NAME, 6, tres="gres/shard:20"))
    told = explained(store, 6)["Why this size"]
    assert told.startswith("20 of 39 shards of 1024 MiB now: its request was changed since")
    store.runs.see(run_row(NAME, 7))
    assert explained(store, 7)["Why this size"].startswith("shares a GPU: ")


def test_the_partition_that_slurm_chose(store: Store) -> None:
    store.runs.see(run_row(NAME, 5))
    assert "partition not known" in explained(store)["Job"]
    watcher = Watcher(store, None, None, lambda view: False)  # type: ignore[arg-type]
    mark = f"coloc:1:{NAME}:collocate:fits:12"
    watcher.see(JobView(8, "PENDING", uid=OWNER, partition="main", admin_comment=mark))
    assert "partition main" in explained(store, 8)["Job"]


def test_a_mig_device_is_no_whole_gpu() -> None:
    row = {"action": "collocate", "shards": 1, "shards_per_gpu": 1, "shard_mib": 4864}
    assert share({**row, "tres": "gres/gpu:1g.5gb:1"}) == "MIG 1g.5gb, 4.8 GiB"
    assert share({**row, "tres": "gres/gpu:a100:1"}) == "whole GPU"
    assert share({**row, "tres": "gres/gpu:1"}) == "whole GPU"
    whole = {**row, "action": "exclusive", "shards_per_gpu": 0, "tres": "gres:shard:39"}
    assert share(whole) == "whole GPU"  # 22.05


def report_lines(store: Store) -> dict[str, str]:
    answer = report_flow.report(store, OWNER, {"job_id": 5}, False)
    return {name: str(text) for name, text in report_page._lines(answer)}


def test_a_node_without_nvml_knows_little(store: Store) -> None:
    """Nobody knows on which GPU it was, so nobody knows who was beside it."""
    close(store, run_row(NAME, 5), gpu_uuids=None, method="streams", used=None)
    told = report_lines(store)
    assert (
        told["Neighbours"]
        == "not known: its node did not tell the job's GPU (no NVML, or no Prolog)"
    )
    assert told["Speed"].startswith("not known")
    assert told["Fence"].startswith("none") and "took turns" not in told["Fence"]


def test_what_a_run_uses_is_known_at_its_end(store: Store) -> None:
    """The node's record comes with the Epilog; until then nothing is said to be missing."""
    store.runs.see(run_row(NAME, 5))
    told = report_lines(store)
    for name in ("Memory", "SM activity", "Fence"):
        assert told[name].startswith("not known yet"), told[name]
    assert "not measured" not in str(told) and "no agent" not in str(told)


def test_a_node_has_time_to_tell_of_a_run_that_begins(store: Store) -> None:
    for ago_s, state, words in (
        (1, "RUNNING", ""), (60, "RUNNING", "told colocd nothing"),
        (2, "COMPLETED", "told colocd nothing"),
    ):  # fmt: skip
        row = run_row(NAME, 5, gpu_uuids=None, start_s=time.time() - ago_s)
        found = setup_text(row, decision(NAME), task(5, "", state))
        assert words in found and bool(found) == bool(words)


def test_turns_with_neighbours_that_were_there(store: Store) -> None:
    close(store, run_row(NAME, 5), method="streams", used=[used(5, 9100, 0.4)])
    told = report_lines(store)
    assert told["Neighbours"] == "none" and told["Speed"] == "it had no neighbour"
    assert "took turns" not in told["Fence"]


def test_an_unknown_cause_is_told_as_one(store: Store) -> None:
    close(store, run_row(NAME, 5), outcome="oom-gpu", blame="unknown", verdict="requeue")
    assert report_lines(store)["Blame"] == "cause unknown: taken for its own need"


def test_what_was_put_back_is_counted(store: Store) -> None:
    for job_id, verdict in ((5, "requeue"), (6, "requeue-victim"), (7, "not-ours")):
        close(store, run_row(NAME, job_id), outcome="oom-gpu", verdict=verdict)
    close(store, run_row(NAME, 8), outcome="put-back")
    (user,) = report_flow.summary(store, OWNER, {})["users"]
    assert user["put_back"] == 3


def test_estimate_tells_the_least_share() -> None:
    site = GpuSite("text", Stack(1900), 1024, "a100-40gb", 39, max_jobs_per_gpu=8)
    found = estimate_answer(mlp_summary(1), TrainingOptions(batch_size=32), site, ("text",))
    assert found.shards == 5, "as sbatch reserves"
    assert "5 of 39 shards of one a100-40gb, the least: 8 jobs a GPU at most" in found.reason


def task(job_id: int, index: str, state: str = "RUNNING") -> JobView:
    mark = f"coloc:1:{NAME}:collocate:fits:12"
    return JobView(
        job_id, state, uid=OWNER, partition="main", admin_comment=mark, array_job_id=9,
        array_task=index,
    )  # fmt: skip


def test_array_tasks_are_found_and_shown_by_their_names(store: Store) -> None:
    watcher = Watcher(store, None, None, lambda view: False)  # type: ignore[arg-type]
    # The record of those that wait stands for the first of them, as squeue and its JSON show it.
    for view in (task(9, "1", "PENDING"), task(11, "1"), task(12, "2"), task(9, "3", "PENDING")):
        watcher.see(view)

    def found(index: int) -> int:
        wanted = {"job_id": 9, "array_task": index}
        return answers.find(store, OWNER, wanted, False).job_id

    assert (found(1), found(2)) == (11, 12)
    assert found(4) == 9, "it waits in the record of the array"
    store.runs.see(run_row(NAME, 92))
    assert answers.find(store, OWNER, {"job_id": 92}, False).job_id == 92
    rows = {row["job_id"]: name_of(row) for row in answers.jobs(store, OWNER, {}, False)["jobs"]}
    assert rows == {9: "9", 11: "9_1", 12: "9_2", 92: "92"}
    watcher.see(task(9, "6"))
    assert found(6) == 9
    with pytest.raises(UsageFault, match="9_7"):
        answers.find(store, OWNER, {"job_id": 9, "array_task": 7}, False)
    for wrong in (True, -1, "2", 2**40):
        with pytest.raises(UsageFault, match="array_task"):
            answers.find(store, OWNER, {"job_id": 9, "array_task": wrong}, False)


def test_a_job_that_was_submitted_a_moment_ago(store: Store) -> None:
    """Its own submission was not seen in Slurm yet: that is said, not that it is none of ours."""
    fault = UsageFault("job 5: not a --coloc job that you may see", "unknown-job")
    assert unknown_job(store, OWNER, 5, fault) is fault
    store.decisions.add(decision("0000000000b1", bound=0, made_s=NOW))
    told = unknown_job(store, OWNER, 5, fault)
    assert "not seen yet" in told.message and told.code == "unknown-job"


def test_a_second_question_within_a_second_waits_for_its_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slurm:
        looks = 0

        async def job(self, job_id: int) -> JobView:
            self.looks += 1
            mark = f"coloc:1:{NAME}:collocate:fits:12"
            return JobView(job_id, "PENDING", uid=OWNER, partition="main", admin_comment=mark)

        async def jobs_of(self, users: list[int]) -> list[JobView]:
            self.looks += 1
            return []

    async def ask() -> int:
        slurm = Slurm()
        watcher = Watcher(store, slurm, None, lambda view: False)  # type: ignore[arg-type]
        await watcher.poll(5, OWNER, trusted=False)
        await watcher.poll(6, OWNER, trusted=False)
        await watcher.freshen(OWNER)  # for the list of his jobs
        return slurm.looks

    monkeypatch.setattr("slurm_coloc.flow.watch.turns.FRESH_S", 0.05)
    store.decisions.add(decision("0000000000b1", bound=0, made_s=NOW))
    assert asyncio.run(ask()) == 3
    assert store.runs.of_job(6), "it was looked at once the user may look again"
