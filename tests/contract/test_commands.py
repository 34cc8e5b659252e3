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
from slurm_coloc.adapters.slurm.commands.accounting import parse_ended
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
    words,
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
from slurm_coloc.core.slurm.binding import Gpu, Need
from slurm_coloc.core.slurm.controller import Controller, active_controller
from slurm_coloc.core.slurm.job import REQUEUED_HELD, TERMINAL, JobView, decision_in
from slurm_coloc.core.slurm.releases import JSON_LAYOUTS, parse_release, shown
from slurm_coloc.errors import SlurmError

RECORDED = sorted(path for path in (Path(__file__).parent / "slurm").iterdir() if path.is_dir())


@dataclass
class Recorded:
    """The answers of one release; ``layout``: of the JSON that jobs and nodes are read from."""

    folder: Path
    layout: str = ""

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


@pytest.fixture(params=FORMS.values(), ids=FORMS)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    found: Recorded = request.param
    return found


def test_the_releases_are_recorded() -> None:
    """Every layout of JSON that a release may be asked for, as the newest of them writes it."""
    assert {"22.05-text", "24.11-text", "24.11-v0.0.42", "26.05-text"} <= set(FORMS)
    assert {f"26.05-{layout}" for layout in JSON_LAYOUTS.values()} <= set(FORMS)


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("shards", "RUNNING", ""),
        ("waits", "PENDING", "Resources"),
        ("closed", "PENDING", "PartitionDown"),
        ("held", "PENDING", "JobHeldUser"),
        ("depends", "PENDING", "Dependency"),
        ("completed", "COMPLETED", ""),
        ("cancelled", "CANCELLED", None),  # "Prolog" where it was cancelled in there
        ("failed", "FAILED", "NonZeroExitCode"),
        ("requeued", "PENDING", "job requeued in held state"),
    ],
)
def test_state_and_reason(recorded: Recorded, name: str, state: str, reason: str | None) -> None:
    job = recorded.job(name)
    assert (job.state, job.reason) == (state, job.reason if reason is None else reason)


def test_what_lies_below_completing(recorded: Recorded) -> None:
    over, again = recorded.job("completing"), recorded.job("again")
    assert (over.state, over.completing, over.ended, over.restarts) == ("FAILED", True, False, 0)
    assert (again.state, again.completing, again.held, again.restarts) == ("PENDING", True, True, 1)


def test_exit_code_and_signal(recorded: Recorded) -> None:
    assert (recorded.job("failed").exit_code, recorded.job("failed").signal) == (3, 0)
    assert (recorded.job("killed").exit_code, recorded.job("killed").signal) == (0, 9)
    assert (recorded.job("completed").exit_code, recorded.job("completed").signal) == (0, 0)


def test_a_hostile_name_forges_nothing(recorded: Recorded) -> None:
    job = recorded.job("shards")
    assert job.state == "RUNNING"
    assert job.nodes == "n1"
    assert job.tres_per_node.endswith("shard:12")


def test_requeued_job(recorded: Recorded) -> None:
    job = recorded.job("requeued")
    assert (job.restarts, job.held) == (1, True)
    assert decision_in(job.admin_comment) == "0123456789ab"


def test_who_and_what(recorded: Recorded) -> None:
    running, waits = recorded.job("shards"), recorded.job("depends")
    assert (running.batch_host, running.requeue, running.batch) == ("n1", True, True)
    assert (running.dependency, waits.batch_host) == ("", "")
    assert waits.dependency == f"afterok:{recorded.id_of('shards')}(unfulfilled)"


def test_array_tasks(recorded: Recorded) -> None:
    array = recorded.id_of("array")
    tasks = [job for job in recorded.jobs() if job.array_job_id == array]
    # One record stands for all pending tasks; squeue --array makes a line of each.
    expected = ["1", "2"] if recorded.layout else ["1", "2", "3"]
    assert sorted(job.array_task or "" for job in tasks) == expected
    assert all(job.handle == f"{array}_{job.array_task}" for job in tasks)
    started = next(job for job in tasks if job.array_task == "1")
    assert started.state == "RUNNING"
    assert started.job_id != array or recorded.release > "24.11"


def test_times(recorded: Recorded) -> None:
    job = recorded.job("completed")
    assert job.submit_s is not None
    assert job.start_s is not None
    assert job.end_s is not None
    assert job.submit_s <= job.start_s <= job.end_s


def test_nodes_and_partitions(recorded: Recorded) -> None:
    lines = recorded.text("partitions").splitlines()
    config = parse_config(recorded.text("config"))
    shape = cluster_shape(config, recorded.nodes(), [parse_pairs(line) for line in lines])
    nodes = shape.nodes
    assert [(n.name, n.gpu_type, n.gpus, n.shards_per_gpu, n.usable) for n in nodes] == [
        ("n1", "a100", 2, 39, True),
        ("n2", "a100", 2, 39, True),
    ]
    assert nodes[0].partitions == ("main", "short")
    assert (nodes[0].cpus, nodes[0].memory_mib) == (32, 128_000)
    assert (nodes[0].address, nodes[0].hostname) == ("127.0.0.1", "head")
    weights = [node_weight(pairs) for pairs in recorded.nodes()]
    assert [(one.name, one.weight, one.gpus) for one in weights] == [
        ("n1", 1, True),
        ("n2", 1, True),
    ]
    parts = {part.name: part for part in shape.partitions}
    assert parts["main"].default and parts["main"].max_time_min == 1440
    assert (parts["short"].def_cpu_per_gpu, parts["short"].def_mem_per_gpu_mib) == (4, 8192)
    assert parts["short"].max_time_min is None
    assert parts["closed"].max_time_min == 30
    assert {(part.qos, part.preempt_mode) for part in parts.values()} == {("", "OFF")}


def test_configuration(recorded: Recorded) -> None:
    config = parse_config(recorded.text("config"))
    assert config["ClusterName"] == "coloc-record"
    assert config["GresTypes"] == "gpu,shard"
    assert words(config, "PrivateData") == frozenset()
    assert words(config, "SelectTypeParameters") == {"CR_CORE_MEMORY"}
    assert "gres/gpu" not in words(config, "AccountingStorageTRES")
    assert shown(parse_release(config["SLURM_VERSION"])) == recorded.release


def test_use_of_the_nodes(recorded: Recorded) -> None:
    """Shards per GPU on 24.11; packed sums of the running jobs before."""
    lines = recorded.text("needs").splitlines()
    running = {recorded.id_of(name) for name in ("shards", "big", "whole")}
    shards = parse_shards_by_node("\n".join(one for one in lines if int(one[:14]) in running))
    assert shards == {"n1": [12, 39]}
    n1, n2 = (node_use(pairs, shards) for pairs in recorded.nodes())
    assert sorted(gpu.shards_used for gpu in n1.gpus) == [12, 39]
    assert [gpu.shards for gpu in n1.gpus] == [39, 39]
    assert sorted(gpu.whole for gpu in n2.gpus) == [False, True]
    assert (n1.cpus, n1.cpus_used, n1.memory_mib, n1.memory_used_mib) == (32, 3, 128000, 8192)
    assert n1.spread == n2.spread == (recorded.release >= "24.11")


def test_needs(recorded: Recorded) -> None:
    assert recorded.need("waits") == Need(cpus=1, memory_mib=1000, shards=39)
    assert recorded.need("shards") == Need(cpus=2, memory_mib=3072, shards=12)
    assert recorded.need("whole") == Need(cpus=4, memory_mib=4000, gpus=1)
    assert recorded.need("closed").memory_mib == 128000, "no DefMem: Slurm takes the whole node"


def test_controllers(recorded: Recorded) -> None:
    found = parse_ping(recorded.text("ping"))
    assert found == [Controller("head", up=True, primary=True)]
    assert active_controller(found) == found[0]
    down = parse_ping("Slurmctld(primary) at a is DOWN\nSlurmctld(backup) at b.x is UP\n*****\n")
    assert active_controller(down) == Controller("b.x", up=True, primary=False)


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
