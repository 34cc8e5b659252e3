# SPDX-License-Identifier: Apache-2.0
"""The parsers of adapters/commands against answers of real clusters (record.py makes them)."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from slurm_coloc.adapters.commands.parse import (
    parse_config,
    parse_exit,
    parse_job_line,
    parse_jobs,
    parse_node,
    parse_partition,
    parse_reason,
    parse_release,
)
from slurm_coloc.adapters.commands.use import (
    NEED_COLUMNS,
    parse_columns,
    parse_mib,
    parse_need,
    parse_placement,
    parse_shards_by_node,
    parse_use,
    tells_per_gpu,
)
from slurm_coloc.core.binding import Gpu, Need
from slurm_coloc.core.comment import decision_in
from slurm_coloc.core.job import JobView
from slurm_coloc.errors import SlurmError

RECORDED = sorted(path for path in (Path(__file__).parent / "slurm").iterdir() if path.is_dir())


@dataclass
class Recorded:
    """The answers of one release."""

    folder: Path

    @property
    def release(self) -> str:
        return self.folder.name

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def id_of(self, name: str) -> int:
        return int(json.loads((self.folder / "jobs.json").read_text())["jobs"][name])

    def job(self, name: str) -> JobView:
        wanted = self.id_of(name)
        return next(job for job in parse_jobs(self.text("jobs")) if job.job_id == wanted)

    def need(self, name: str) -> Need:
        lines = self.text("needs").splitlines()
        return next(parse_need(one) for one in lines if int(one[:14]) == self.id_of(name))


@pytest.fixture(params=RECORDED, ids=lambda path: path.name)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request.param)


def test_two_releases_are_recorded() -> None:
    assert {"22.05", "24.11"} <= {path.name for path in RECORDED}


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("shards", "RUNNING", ""),
        ("waits", "PENDING", "Resources"),
        ("closed", "PENDING", "PartitionDown"),
        ("held", "PENDING", "JobHeldUser"),
        ("depends", "PENDING", "Dependency"),
        ("completed", "COMPLETED", ""),
        ("cancelled", "CANCELLED", ""),
        ("failed", "FAILED", "NonZeroExitCode"),
        ("requeued", "PENDING", "job requeued in held state"),
    ],
)
def test_state_and_reason(recorded: Recorded, name: str, state: str, reason: str) -> None:
    job = recorded.job(name)
    assert (job.state, job.reason) == (state, reason)


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


def test_array_tasks(recorded: Recorded) -> None:
    array = recorded.id_of("array")
    tasks = [job for job in parse_jobs(recorded.text("jobs")) if job.array_job_id == array]
    assert sorted(job.array_task or "" for job in tasks) == ["1", "2", "3"]
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
    nodes = [parse_node(line) for line in recorded.text("nodes").splitlines()]
    assert [(n.name, n.gpu_type, n.gpus, n.shards_per_gpu, n.usable) for n in nodes if n] == [
        ("n1", "a100", 2, 39, True),
        ("n2", "a100", 2, 39, True),
    ]
    assert nodes[0] is not None and nodes[0].partitions == ("main", "short")
    parts = {
        part.name: part for part in map(parse_partition, recorded.text("partitions").splitlines())
    }
    assert parts["main"].default and parts["main"].max_time_min == 1440
    assert (parts["short"].def_cpu_per_gpu, parts["short"].def_mem_per_gpu_mib) == (4, 8192)
    assert parts["short"].max_time_min is None
    assert parts["closed"].max_time_min == 30


def test_configuration(recorded: Recorded) -> None:
    config = parse_config(recorded.text("config"))
    assert config["ClusterName"] == "coloc-record"
    assert config["GresTypes"] == "gpu,shard"
    release = ".".join(f"{part:02}" for part in parse_release(config["SLURM_VERSION"])[:2])
    assert release == recorded.release


def test_use_of_the_nodes(recorded: Recorded) -> None:
    """Shards per GPU on 24.11; packed sums of the running jobs before."""
    lines = recorded.text("needs").splitlines()
    running = {recorded.id_of(name) for name in ("shards", "big", "whole")}
    shards = parse_shards_by_node("\n".join(one for one in lines if int(one[:14]) in running))
    assert shards == {"n1": [12, 39]}
    nodes = recorded.text("nodes")
    n1, n2 = (parse_use(line, shards) for line in nodes.splitlines())
    assert sorted(gpu.shards_used for gpu in n1.gpus) == [12, 39]
    assert [gpu.shards for gpu in n1.gpus] == [39, 39]
    assert sorted(gpu.whole for gpu in n2.gpus) == [False, True]
    assert (n1.cpus, n1.cpus_used, n1.memory_mib, n1.memory_used_mib) == (32, 3, 128000, 8192)
    assert n1.spread == n2.spread == tells_per_gpu(nodes) == (recorded.release >= "24.11")


def test_needs(recorded: Recorded) -> None:
    assert recorded.need("waits") == Need(cpus=1, memory_mib=1000, shards=39)
    assert recorded.need("shards") == Need(cpus=2, memory_mib=3072, shards=12)
    assert recorded.need("whole") == Need(cpus=4, memory_mib=4000, gpus=1)
    assert recorded.need("closed").memory_mib == 128000, "no DefMem: Slurm takes the whole node"


def test_unknown_job(recorded: Recorded) -> None:
    told = json.loads((recorded.folder / "unknown-job.json").read_text())
    assert told["returncode"] == 1
    assert "Invalid job id" in told["stderr"]


def test_small_parsers() -> None:
    assert parse_exit("768") == (3, 0)
    assert parse_exit("9") == (0, 9)
    assert parse_exit("0:15") == (0, 15)
    assert parse_exit("") == (0, 0)
    assert parse_reason("(Resources)") == "Resources"
    assert parse_reason("n[1-2]") == ""
    assert [parse_mib(text) for text in ("1000M", "1.50G", "2T", "512K", "", "?")] == [
        1000, 1536, 2097152, 0, 0, 0,
    ]  # fmt: skip


def test_gres_used_of_later_releases() -> None:
    line = (
        "NodeName=n Gres=gpu:a100:3,shard:120{} GresUsed=gpu:a100:1(IDX:2),shard:{}72(20/40,32/40,"
        "20/40) CPUTot=8 CPUAlloc=1 RealMemory=10 AllocMem=1 State=IDLE Partitions=p"
    )
    for null in ("(null):", ""):
        use = parse_use(line.format("", null), {})
        assert use.gpus == (Gpu(20, 40), Gpu(32, 40), Gpu(20, 40, whole=True))


def test_placement() -> None:
    head = "JobId=1 JobName=x\n   NumNodes=1\n"
    old = head + "     Nodes=n1 CPU_IDs=0 Mem=1000 GRES=shard:12(IDX:0)\n"
    new = head + "     Nodes=n1 CPU_IDs=0 Mem=1000 GRES=shard:a100:12(0/39,12/39)\n"
    assert parse_placement(old) == "n1 GPU 0"
    assert parse_placement(new) == "n1 GPU 1"
    assert parse_placement(head) == ""


def test_another_layout_is_an_error() -> None:
    with pytest.raises(SlurmError):
        parse_job_line("1 RUNNING")
    with pytest.raises(SlurmError):
        parse_columns("1 1", NEED_COLUMNS)
