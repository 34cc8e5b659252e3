# SPDX-License-Identifier: Apache-2.0
"""Where a GPU may stand in a request, and what hangs on it."""

from dataclasses import replace

import pytest

from slurm_coloc.core.decide.decision import Action, Decision, Reason
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import exclusive_tres, rewrite
from slurm_coloc.core.slurm.cluster import ClusterShape, PartitionShape
from slurm_coloc.core.slurm.job import Mark, comment_with, decision_in
from tests.unit.core.conftest import a100, make_shape

SHARE = Decision(Action.COLLOCATE, Reason.FITS, 12, None, 39)
WHOLE = Decision(Action.EXCLUSIVE, Reason.FILLS_GPU)
BASE = {
    "tres_per_node": "gres/shard:12",
    "min_nodes": 1,
    "max_nodes": 1,
    "requeue": 1,
}


@pytest.mark.parametrize(
    ("request_", "more"),
    [
        (JobRequest(1), {}),
        (JobRequest(1, tres_per_node="gres/gpu:1"), {}),
        (JobRequest(1, tres_per_node="gres:gpu:1"), {}),
        (JobRequest(1, tres_per_job="gres/gpu:1"), {"tres_per_job": ""}),
        (JobRequest(1, tres_per_task="gres/gpu:1"), {"tres_per_task": "", "tres_bind": ""}),
        (
            JobRequest(1, tres_per_task="cpu:2,gres/gpu:1"),
            {"tres_per_task": "cpu:2", "tres_bind": ""},
        ),
        (
            JobRequest(1, tres_per_node="gres/lustre:1", tres_per_job="gres/gpu:1"),
            {"tres_per_node": "gres/shard:12,gres/lustre:1", "tres_per_job": ""},
        ),
        (
            JobRequest(1, tres_per_node="gres/gpu:1", cpus_per_tres="gres/gpu:4"),
            {"cpus_per_tres": "", "cpus_per_task": 4},
        ),
        (
            JobRequest(1, tres_per_job="gres/gpu:1", cpus_per_tres="gres/gpu:4", num_tasks=3),
            {"tres_per_job": "", "cpus_per_tres": "", "cpus_per_task": 2},
        ),
        (
            JobRequest(1, tres_per_node="gres/gpu:1", mem_per_tres="gres/gpu:100"),
            {"mem_per_tres": "", "min_mem_per_node": 100},
        ),
    ],
)
def test_to_shards(shape: ClusterShape, request_: JobRequest, more: dict[str, object]) -> None:
    assert rewrite(request_, SHARE, shape).fields == {**BASE, **more}


def test_the_users_no_requeue_stays(shape: ClusterShape) -> None:
    assert "requeue" not in rewrite(JobRequest(1, requeue=0), SHARE, shape).fields


def test_interactive_jobs_keep_requeue(shape: ClusterShape) -> None:
    fields = rewrite(JobRequest(1, batch=False), SHARE, shape).fields
    assert "requeue" not in fields


def test_partition_defaults_per_gpu_are_applied_by_us() -> None:
    part = PartitionShape("main", default=True, def_cpu_per_gpu=6, def_mem_per_gpu_mib=8000)
    shape = make_shape(a100(), partitions=(part,))
    fields = rewrite(JobRequest(1, tres_per_node="gres/gpu:1"), SHARE, shape).fields
    assert (fields["cpus_per_task"], fields["min_mem_per_node"]) == (6, 8000)
    told = JobRequest(1, tres_per_node="gres/gpu:1", cpus_per_task=2, min_mem_per_cpu=100)
    fields = rewrite(told, SHARE, shape).fields
    assert "cpus_per_task" not in fields
    assert "min_mem_per_node" not in fields


def test_typed_request_stays_typed(shape: ClusterShape) -> None:
    typed = JobRequest(1, tres_per_node="gres/gpu:a100:1")
    fields = rewrite(typed, replace(SHARE, gpu_type="a100"), shape).fields
    assert fields["tres_per_node"] == "gres/shard:a100:12"
    assert exclusive_tres(typed, shape) == "gres/gpu:a100:1"


def test_only_variables_that_are_there_are_emptied(shape: ClusterShape) -> None:
    request = JobRequest(1, tres_per_job="gres/gpu:1", env=("SLURM_GPUS", "SLURM_CPUS_PER_GPU"))
    assert rewrite(request, SHARE, shape).empty_env == ("SLURM_GPUS",)


def test_exclusive_asks_for_one_gpu_where_none_was_named(shape: ClusterShape) -> None:
    assert rewrite(JobRequest(1), WHOLE, shape).fields == {"tres_per_node": "gres/gpu:1"}
    assert rewrite(JobRequest(1, tres_per_job="gres/gpu:4"), WHOLE, shape).fields == {}


def test_before_23_11_5_a_whole_gpu_is_all_of_its_shards() -> None:
    old = make_shape(a100(), release=(22, 5, 8))
    one = JobRequest(1, tres_per_node="gres:gpu:1")
    assert rewrite(one, WHOLE, old).fields["tres_per_node"] == "gres/shard:39"
    assert exclusive_tres(one, old) == "gres/shard:39"
    assert rewrite(replace(one, tres_per_node="gres:gpu:2"), WHOLE, old).fields == {}
    for named in ({"kind": "srun"}, {"tres_freq": "gpu:high"}, {"ntasks_per_tres": 2}):
        assert rewrite(replace(one, **named), WHOLE, old).fields == {}  # type: ignore[arg-type]


def test_as_submitted_changes_nothing(shape: ClusterShape) -> None:
    asis = Decision(Action.ASIS, Reason.NO_GPU_ASKED)
    assert rewrite(JobRequest(1, tres_per_node="gres/gpu:0"), asis, shape).fields == {}


def test_the_mark_is_found_again_beside_a_sites_own_comment() -> None:
    mark = Mark("0123456789ab", SHARE.action, SHARE.reason, SHARE.shards)
    text = comment_with("ticket 7; gold", mark)
    assert text == "ticket 7; gold; coloc:1:0123456789ab:collocate:fits:12"
    assert decision_in(text) == "0123456789ab"
    assert decision_in(comment_with(None, mark)) == "0123456789ab"
    assert decision_in("xcoloc:1:0123456789ab:collocate:fits:12") is None
    forged = "coloc:1:aaaaaaaaaaaa:collocate:fits:1"
    assert decision_in(comment_with(forged, mark)) == "0123456789ab"
