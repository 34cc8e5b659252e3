# SPDX-License-Identifier: Apache-2.0
"""What must hold of Slurm's answers about the jobs of record.py: for each release, and whichever
client read them. test_commands.py asks recorded answers, tests/cluster/test_pyslurm.py a cluster,
by Slurm's commands and by pyslurm.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pytest

from slurm_coloc.adapters.slurm.commands.parse import words
from slurm_coloc.core.slurm.binding import Need, NodeUse
from slurm_coloc.core.slurm.cluster import ClusterShape, NodeWeight
from slurm_coloc.core.slurm.controller import Controller, active_controller
from slurm_coloc.core.slurm.job import JobView, decision_in
from slurm_coloc.core.slurm.releases import parse_release, shown


class SlurmAnswers(Protocol):
    """Answers. ``each_task``: every task of an array that waits has a JobView of its own; ``lab``,
    ``host``: their names."""

    release: str
    lab: str
    host: str
    each_task: bool

    def id_of(self, name: str) -> int:
        """A job by record.py's name."""

    def job(self, name: str) -> JobView: ...

    def jobs(self) -> list[JobView]: ...

    def need(self, name: str) -> Need: ...

    def usage(self) -> Sequence[NodeUse]: ...

    def shape(self) -> ClusterShape: ...

    def weights(self) -> Sequence[NodeWeight]: ...

    def config(self) -> Mapping[str, str]: ...

    def controllers(self) -> list[Controller]: ...


class Cases:
    """A test class of them has a fixture ``asked``."""

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
    def test_state_and_reason(
        self, asked: SlurmAnswers, name: str, state: str, reason: str | None
    ) -> None:
        job = asked.job(name)
        assert (job.state, job.reason) == (state, job.reason if reason is None else reason)

    def test_what_lies_below_completing(self, asked: SlurmAnswers) -> None:
        over, again = asked.job("completing"), asked.job("again")
        assert (over.state, over.restarts) == ("FAILED", 0)
        assert over.completing and not over.ended
        assert (again.state, again.restarts) == ("PENDING", 1)
        assert again.completing and again.held

    def test_exit_code_and_signal(self, asked: SlurmAnswers) -> None:
        assert (asked.job("failed").exit_code, asked.job("failed").signal) == (3, 0)
        assert (asked.job("killed").exit_code, asked.job("killed").signal) == (0, 9)
        assert (asked.job("completed").exit_code, asked.job("completed").signal) == (0, 0)

    def test_a_hostile_name_forges_nothing(self, asked: SlurmAnswers) -> None:
        job = asked.job("shards")
        assert job.state == "RUNNING"
        assert job.nodes == "n1"
        assert job.tres_per_node.endswith("shard:12")

    def test_requeued_job(self, asked: SlurmAnswers) -> None:
        job = asked.job("requeued")
        assert (job.restarts, job.held) == (1, True)
        assert decision_in(job.admin_comment) == "0123456789ab"

    def test_who_and_what(self, asked: SlurmAnswers) -> None:
        running, waits = asked.job("shards"), asked.job("depends")
        assert (running.batch_host, running.requeue, running.batch) == ("n1", True, True)
        assert (running.dependency, waits.batch_host) == ("", "")
        assert waits.dependency == f"afterok:{asked.id_of('shards')}(unfulfilled)"

    def test_array_tasks(self, asked: SlurmAnswers) -> None:
        array = asked.id_of("array")
        tasks = [job for job in asked.jobs() if job.array_job_id == array]
        expected = ["1", "2", "3"] if asked.each_task else ["1", "2"]
        assert sorted(job.array_task or "" for job in tasks) == expected
        assert all(job.handle == f"{array}_{job.array_task}" for job in tasks)
        started = next(job for job in tasks if job.array_task == "1")
        assert started.state == "RUNNING"
        assert started.job_id != array or asked.release > "24.11"

    def test_times(self, asked: SlurmAnswers) -> None:
        job = asked.job("completed")
        assert job.submit_s is not None
        assert job.start_s is not None
        assert job.end_s is not None
        assert job.submit_s <= job.start_s <= job.end_s

    def test_nodes_and_partitions(self, asked: SlurmAnswers) -> None:
        shape = asked.shape()
        nodes = shape.nodes
        assert [(n.name, n.gpu_type, n.gpus, n.shards_per_gpu, n.usable) for n in nodes] == [
            ("n1", "a100", 2, 39, True),
            ("n2", "a100", 2, 39, True),
        ]
        assert nodes[0].partitions == ("main", "short")
        assert (nodes[0].cpus, nodes[0].memory_mib) == (32, 128_000)
        assert (nodes[0].address, nodes[0].hostname) == ("127.0.0.1", asked.host)
        weights = asked.weights()
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

    def test_configuration(self, asked: SlurmAnswers) -> None:
        config = asked.config()
        assert config["ClusterName"] == f"coloc-{asked.lab}"
        assert config["GresTypes"] == "gpu,shard"
        assert words(config, "PrivateData") == frozenset()
        assert words(config, "SelectTypeParameters") == {"CR_CORE_MEMORY"}
        assert "gres/gpu" not in words(config, "AccountingStorageTRES")
        assert shown(parse_release(config["SLURM_VERSION"])) == asked.release

    def test_use_of_the_nodes(self, asked: SlurmAnswers) -> None:
        """Shards per GPU on 24.11; packed sums of the running jobs before."""
        n1, n2 = asked.usage()
        assert sorted(gpu.shards_used for gpu in n1.gpus) == [12, 39]
        assert [gpu.shards for gpu in n1.gpus] == [39, 39]
        assert sorted(gpu.whole for gpu in n2.gpus) == [False, True]
        assert (n1.cpus, n1.cpus_used, n1.memory_mib, n1.memory_used_mib) == (32, 3, 128000, 8192)
        assert n1.spread == n2.spread == (asked.release >= "24.11")

    def test_needs(self, asked: SlurmAnswers) -> None:
        assert asked.need("waits") == Need(cpus=1, memory_mib=1000, shards=39)
        assert asked.need("shards") == Need(cpus=2, memory_mib=3072, shards=12)
        assert asked.need("whole") == Need(cpus=4, memory_mib=4000, gpus=1)
        assert asked.need("closed").memory_mib == 128000, "no DefMem: Slurm takes the whole node"

    def test_controllers(self, asked: SlurmAnswers) -> None:
        found = asked.controllers()
        assert found == [Controller(asked.host, up=True, primary=True)]
        assert active_controller(found) == found[0]
