# SPDX-License-Identifier: Apache-2.0
"""The parsers of adapters/slurm/commands against recorded answers of real clusters (record.py).

Each assertion holds for every release, and for both forms where the release has two.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_coloc.adapters.slurm.commands import data
from slurm_coloc.adapters.slurm.commands.accounting import parse_ended, whole_lines
from slurm_coloc.adapters.slurm.commands.parse import (
    JOB,
    job_view,
    parse_config,
    parse_exit,
    parse_jobs,
    parse_pairs,
    parse_ping,
    parse_reason,
    tasks_in,
)
from slurm_coloc.adapters.slurm.commands.shape import cluster_shape, node_weight
from slurm_coloc.adapters.slurm.commands.use import (
    NEED,
    node_use,
    parse_mib,
    parse_need,
    parse_placement,
    parse_shards_by_node,
    placed,
)
from slurm_coloc.core.slurm.binding import Gpu, Need, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeWeight
from slurm_coloc.core.slurm.controller import Controller, active_controller
from slurm_coloc.core.slurm.job import REQUEUED_HELD, TERMINAL, JobView, decision_in
from slurm_coloc.core.slurm.releases import JSON_LAYOUTS
from slurm_coloc.errors import SlurmError
from tests.contract.cases import Cases

RECORDED = sorted(path for path in (Path(__file__).parent / "slurm").iterdir() if path.is_dir())


@dataclass
class Recorded:
    """The answers of one release; ``layout``: of the JSON that jobs and nodes are read from."""

    folder: Path
    layout: str = ""
    lab: str = "record"
    host: str = "head"

    @property
    def release(self) -> str:
        return self.folder.name

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def id_of(self, name: str) -> int:
        return int(json.loads((self.folder / "jobs.json").read_text())["jobs"][name])

    def items(self, name: str) -> list[data.Item]:
        return data.parse((self.folder / "data" / self.layout / f"{name}.json").read_text(), name)

    def jobs(self) -> list[JobView]:
        if self.layout:
            return [job_view(data.job_values(job)) for job in self.items("jobs")]
        return parse_jobs(self.text("jobs"))

    def job(self, name: str) -> JobView:
        return next(job for job in self.jobs() if job.job_id == self.id_of(name))

    @property
    def each_task(self) -> bool:
        """One record stands for all pending tasks; squeue --array makes a line of each."""
        return not self.layout

    def shape(self) -> ClusterShape:
        parts = [parse_pairs(line) for line in self.text("partitions").splitlines()]
        return cluster_shape(self.config(), self.nodes(), parts)

    def weights(self) -> list[NodeWeight]:
        return [node_weight(pairs) for pairs in self.nodes()]

    def usage(self) -> list[NodeUse]:
        lines = self.text("needs").splitlines()
        running = {self.id_of(name) for name in ("shards", "big", "whole")}
        shards = parse_shards_by_node("\n".join(one for one in lines if int(one[:14]) in running))
        assert shards == {"n1": [12, 39]}
        return [node_use(pairs, shards) for pairs in self.nodes()]

    def config(self) -> Mapping[str, str]:
        return parse_config(self.text("config"))

    def controllers(self) -> list[Controller]:
        return parse_ping(self.text("ping"))

    def nodes(self) -> list[Mapping[str, str]]:
        if self.layout:
            return [data.node_pairs(node) for node in self.items("nodes")]
        return [parse_pairs(line) for line in self.text("nodes").splitlines()]

    def need(self, name: str) -> Need:
        lines = self.text("needs").splitlines()
        return next(parse_need(one) for one in lines if int(one[:14]) == self.id_of(name))


FORMS = {
    f"{path.name}-{layout or 'text'}": Recorded(path, layout)
    for path in RECORDED
    for layout in ("", *sorted(one.name for one in (path / "data").glob("*")))
}


class TestRecorded(Cases):
    @pytest.fixture(params=list(FORMS.values()), ids=list(FORMS))
    def asked(self, request: pytest.FixtureRequest) -> Recorded:
        found: Recorded = request.param
        return found


@pytest.fixture(params=list(FORMS.values()), ids=list(FORMS))
def recorded(request: pytest.FixtureRequest) -> Recorded:
    found: Recorded = request.param
    return found


def test_the_releases_are_recorded() -> None:
    """Every layout of JSON that a release may be asked for, as the newest of them writes it."""
    assert {"22.05-text", "24.11-text", "24.11-v0.0.42", "26.05-text"} <= set(FORMS)
    assert {f"26.05-{layout}" for layout in JSON_LAYOUTS.values()} <= set(FORMS)


def test_placement_in_data(recorded: Recorded) -> None:
    if not recorded.layout:
        return  # test_placement
    found = {job["job_id"]: placed(data.places(job)) for job in recorded.items("jobs")}
    assert {found[recorded.id_of(name)] for name in ("shards", "big")} == {"n1 GPU 0", "n1 GPU 1"}
    assert found[recorded.id_of("whole")] == "n2 GPU 0"
    assert found[recorded.id_of("waits")] == ""


def test_ended_jobs(recorded: Recorded) -> None:
    """Every run of a requeued job, arrays by task, gres and billing; nothing without its end."""
    if not (recorded.folder / "sacct.txt").exists():
        pytest.skip(f"no slurmdbd was at hand to record {recorded.release}")
    jobs = [parse_ended(line) for line in recorded.text("sacct").split("\n") if line]
    assert {job.state for job in jobs} <= TERMINAL | {"REQUEUED"}
    again = next(job for job in jobs if job.state == "REQUEUED")
    later = next(
        job for job in jobs if job.job_id == again.job_id and job.restarts > again.restarts
    )
    assert again.start_s and later.start_s and later.submit_s
    assert again.submit_s and again.submit_s < later.submit_s  # a requeue is a submission
    assert any("gres/shard=" in job.tres for job in jobs)
    assert any("gres/gpu=1" in job.tres and "billing=" in job.tres for job in jobs)
    failed = next(job for job in jobs if job.state == "FAILED")
    assert (failed.exit_code, failed.signal) != (0, 0)
    assert all(job.job_id and job.submit_s and job.end_s and job.uid >= 0 for job in jobs)
    assert {decision_in(job.admin_comment) is not None for job in jobs} == {True, False}
    assert all(job.array_job_id is not None for job in jobs if job.array_task)
    with pytest.raises(SlurmError):
        parse_ended("1|1|COMPLETED")


def test_an_account_with_a_lines_end_hides_no_job_and_forges_none() -> None:
    """As Slurm takes one that enforces no accounts (sacct's delimiter is drawn for each call)."""
    row = [
        "5",
        "5",
        "FAILED",
        "0",
        "1000",
        "x\n6|y\x1f",
        "main",
        "",
        "n1",
        "",
        "",
        "1:0",
        "1",
        "2",
        "3",
    ]
    other = ["7", "7", "COMPLETED", *row[3:5], "y", *row[6:]]
    text = "".join("\x1eab".join(one) + "\n" for one in (row, other))
    found = [parse_ended(line) for line in whole_lines(text, "\x1eab")]
    assert [(one.job_id, one.state, one.nodes) for one in found] == [
        (5, "FAILED", "n1"),
        (7, "COMPLETED", "n1"),
    ]
    with pytest.raises(SlurmError, match="a line of 3 columns"):
        whole_lines("1\x1eab1\x1eabFAILED\n", "\x1eab")


def test_a_controller_that_is_down() -> None:
    down = parse_ping("Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b.x is UP\n*****\n")
    assert active_controller(down) == Controller("b.x", up=True, primary=False)


def test_unknown_job(recorded: Recorded) -> None:
    told = json.loads((recorded.folder / "unknown-job.json").read_text())
    assert told["returncode"] == 1
    assert "Invalid job id" in told["stderr"]


def test_data_of_another_layout_is_an_error() -> None:
    for text in ("", "no json", "[]", "{}", '{"jobs": 7}', '{"jobs": {}}'):
        with pytest.raises(SlurmError) as err:
            data.parse(text, "jobs")
        assert err.value.code == "slurm-layout"
    failed = '{"jobs": [], "errors": [{"description": "Unable to contact slurm controller"}]}'
    with pytest.raises(SlurmError, match="Unable to contact") as err:
        data.parse(failed, "jobs")
    assert err.value.away


def test_small_parsers() -> None:
    tasks = ("7", "3-9:2%1", "0,4-6", "")
    found = [["7"], ["3", "5", "7", "9"], ["0", "4", "5", "6"], []]
    assert [list(tasks_in(text)) for text in tasks] == found
    assert parse_exit("768") == (3, 0)
    assert parse_exit("9") == (0, 9)
    assert parse_exit("0:15") == (0, 15)
    assert parse_exit("") == (0, 0)
    assert parse_reason("Resources") == "Resources"
    assert parse_reason("None") == ""
    assert [parse_mib(text) for text in ("1000M", "1.50G", "2T", "512K", "", "?")] == [
        1000, 1536, 2097152, 0, 0, 0,
    ]  # fmt: skip


def test_gres_used_of_later_releases() -> None:
    line = (
        "NodeName=n Gres=gpu:a100:3,shard:120{} GresUsed=gpu:a100:1(IDX:2),shard:{}72(20/40,32/40,"
        "20/40) CPUTot=8 CPUAlloc=1 RealMemory=10 AllocMem=1 State=IDLE Partitions=p"
    )
    for null in ("(null):", ""):
        use = node_use(parse_pairs(line.format("", null)), {})
        assert use.gpus == (Gpu(20, 40), Gpu(32, 40), Gpu(20, 40, whole=True))
        assert use.owner_uid is None
    owned = node_use(parse_pairs(line.format("", "") + " Owner=ada(1006) MCS_label=N/A"), {})
    assert owned.owner_uid == 1006
    for name, uid in (("root", 0), ("", None), ("N/A", None), ("no-such-user-here", None)):
        assert node_use({"NodeName": "n", "Owner": name}, {}).owner_uid == uid, "as JSON has it"


def test_placement() -> None:
    head = "JobId=1 JobName=x\n   NumNodes=1\n"
    old = head + "     Nodes=n1 CPU_IDs=0 Mem=1000 GRES=shard:12(IDX:0)\n"
    new = head + "     Nodes=n1 CPU_IDs=0 Mem=1000 GRES=shard:a100:12(0/39,12/39)\n"
    assert parse_placement(old) == "n1 GPU 0"
    assert parse_placement(new) == "n1 GPU 1"
    assert parse_placement(head) == ""


def test_the_hold_of_an_expedited_requeue() -> None:
    """Read on 26.05: squeue's text has the flag for a state, its JSON beside it."""
    line = {"State": "REQUEUE_HOLD", "Reason": REQUEUED_HELD, "PriorityLong": "0"}
    both = {**line, "State": "PENDING", "RequeueHold": "1"}
    assert job_view(line) == job_view(both)
    assert job_view(line).held_by_slurm and job_view(line).state == "PENDING"
    assert not job_view({**line, "State": "PENDING"}).held_by_slurm


def test_another_layout_is_an_error() -> None:
    with pytest.raises(SlurmError):
        JOB.parse("1 RUNNING")
    with pytest.raises(SlurmError):
        NEED.parse("1 1")
