# SPDX-License-Identifier: Apache-2.0
"""The decision, over requests, GPUs, history and rules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.config import Config, PoolConfig
from slurm_coloc.core.decide.decide import decide
from slurm_coloc.core.decide.decision import (
    Action,
    Decision,
    Estimate,
    Question,
    Reason,
    Rules,
    Sizing,
)
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.slurm.cluster import ClusterShape, PartitionShape
from slurm_coloc.flow.submit.decide import rules_of
from tests.unit.core.conftest import a100, h100, make_shape

RULES = Rules(Sizing(shard_mib=1024, max_jobs_per_gpu=8, compute_budget=1.4))
ONE = JobRequest(uid=1000, tres_per_node="gres/gpu:1")


def ask(
    shape: ClusterShape,
    request: JobRequest = ONE,
    upper_mib: int | None = 11_900,
    *,
    smact: float | None = None,
    name: str = "collocate",
    oom: int | None = None,
    rules: Rules = RULES,
) -> Decision:
    estimate = Estimate("text", upper_mib, upper_mib, smact) if upper_mib else None
    return decide(Question(request, estimate, oom_mib=oom, policy=name), shape, rules)


def test_a_job_that_fits_gets_the_shards_of_its_upper_estimate(shape: ClusterShape) -> None:
    assert ask(shape) == Decision(Action.COLLOCATE, Reason.FITS, 12, None, 39)


@pytest.mark.parametrize(
    ("request_", "reason", "action"),
    [
        (replace(ONE, tres_per_node="gres/gpu:0"), Reason.NO_GPU_ASKED, Action.ASIS),
        (replace(ONE, tres_per_node="gres/gpu:2"), Reason.MULTI_GPU, Action.EXCLUSIVE),
        (replace(ONE, min_nodes=2, num_tasks=4), Reason.MULTI_GPU, Action.EXCLUSIVE),
        (
            JobRequest(1, tres_per_task="gres/gpu:1", num_tasks=2),
            Reason.MULTI_GPU_SITE,
            Action.EXCLUSIVE,
        ),
        (JobRequest(1, tres_per_socket="gres/gpu:1"), Reason.MULTI_GPU, Action.EXCLUSIVE),
        (replace(ONE, het=True), Reason.HET_JOB, Action.ASIS),
        (replace(ONE, exclusive_node=True), Reason.WHOLE_NODE, Action.EXCLUSIVE),
        (replace(ONE, partition="elsewhere"), Reason.NO_SHARED_GPU, Action.EXCLUSIVE),
        (replace(ONE, tres_per_node="gres/gpu:h100:1"), Reason.NO_SHARED_GPU, Action.EXCLUSIVE),
    ],
)
def test_jobs_that_are_not_shared(
    shape: ClusterShape, request_: JobRequest, reason: Reason, action: Action
) -> None:
    decision = ask(shape, request_)
    assert (decision.action, decision.reason, decision.shards) == (action, reason, 0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kind": "srun"}, Reason.SRUN_STEP),
        ({"tres_freq": "gpu:medium"}, Reason.GPU_OPTIONS),
        ({"ntasks_per_tres": 2}, Reason.GPU_OPTIONS),
        ({"num_tasks": 40}, Reason.MANY_TASKS),
        ({"num_tasks": 2, "ntasks_per_node": 1}, Reason.NO_SHARED_GPU),
        ({"req_nodes": "n2"}, Reason.NAMED_NODES),
        ({"exc_nodes": "n1"}, Reason.NAMED_NODES),
        ({"reservation": "weekend"}, Reason.NAMED_NODES),
        ({"features": "[a*2&b]"}, Reason.NAMED_NODES),
    ],
)
def test_requests_that_shards_would_break_stay_as_they_are(
    changes: dict[str, object], reason: Reason
) -> None:
    mixed = make_shape(a100(cpus=32), a100("n2", shards=0, cpus=32))
    assert ask(mixed, replace(ONE, **changes)).reason is reason  # type: ignore[arg-type]


def test_named_nodes_are_harmless_where_all_gpus_are_shared(shape: ClusterShape) -> None:
    assert ask(shape, replace(ONE, req_nodes="n1")).action is Action.COLLOCATE
    assert ask(shape, JobRequest(1, kind="srun")).action is Action.COLLOCATE
    one_node = replace(ONE, num_tasks=40, max_nodes=1)
    assert ask(make_shape(a100(cpus=32)), one_node).action is Action.COLLOCATE


def test_no_estimate_is_a_whole_gpu(shape: ClusterShape) -> None:
    assert ask(shape, upper_mib=None).action is Action.EXCLUSIVE


def test_a_job_that_fills_the_gpu_gets_it_whole(shape: ClusterShape) -> None:
    assert ask(shape, upper_mib=38 * 1024).shards == 38
    assert ask(shape, upper_mib=38 * 1024 + 1).reason is Reason.FILLS_GPU


def test_a_model_that_held_more_than_its_share_gets_a_whole_gpu(shape: ClusterShape) -> None:
    found = Estimate("text", 3000, 4000)
    why = "job 9, 34.7 GiB of 6.0 promised; until 2026-11-26 03:00 it does not share"
    question = Question(ONE, found, held_more=why)
    decision = decide(question, shape, Rules(Sizing()))
    assert (decision.action, decision.reason) == (Action.EXCLUSIVE, Reason.HELD_MORE)
    assert decision.why.endswith(why)


def test_the_compute_budget_enlarges_the_share(shape: ClusterShape) -> None:
    assert ask(shape, smact=0.9).shards == 26  # 0.9 / 1.4 of 39
    assert (
        ask(shape, smact=1.0, rules=Rules(replace(RULES.sizing, compute_budget=0.5))).shards == 38
    )


def test_a_small_job_still_takes_its_part_of_the_gpu(shape: ClusterShape) -> None:
    assert ask(shape, upper_mib=100).shards == 5  # 39 shards over 8 jobs


def test_history_of_an_oom_leads_to_a_whole_gpu_until_the_share_grows(shape: ClusterShape) -> None:
    assert ask(shape, oom=12 * 1024).reason is Reason.HISTORY_OOM
    assert ask(shape, oom=11 * 1024).action is Action.COLLOCATE


def test_on_a_mixed_cluster_a_large_job_names_the_gpu_that_holds_it() -> None:
    shape = make_shape(a100(), h100())
    assert ask(shape).gpu_type is None
    large = ask(shape, upper_mib=60_000)
    assert (large.action, large.gpu_type, large.shards) == (Action.COLLOCATE, "h100", 59)


def test_a_pool_leaves_other_partitions_alone(shape: ClusterShape) -> None:
    rules = replace(RULES, pool=("shared",))
    assert ask(shape, rules=rules).reason is Reason.NO_SHARED_GPU


def test_a_job_that_may_also_start_outside_the_pool_is_not_shared() -> None:
    shape = make_shape(a100(), a100("n2", partitions=("other",)))
    rules = replace(RULES, pool=("main",))
    assert ask(shape, replace(ONE, partition="main,other"), rules=rules).action is Action.EXCLUSIVE


def test_exclusive_policy(shape: ClusterShape) -> None:
    assert ask(shape, name="exclusive").reason is Reason.USER_EXCLUSIVE


def test_activity_takes_shards_only_where_it_is_counted(shape: ClusterShape) -> None:
    assert ask(shape, smact=0.7).shards == 20  # 0.7 / 1.4 of 39
    assert ask(shape, smact=0.7, rules=Rules(Sizing(compute_budget=None))) == ask(shape)
    pool = PoolConfig()
    assert rules_of(Config()).sizing.compute_budget is None
    on = rules_of(Config(pool=pool.model_copy(update={"size_by_smact": True})))
    assert on.sizing.compute_budget == pool.compute_budget


@given(
    upper=st.integers(1, 10**7),
    smact=st.none() | st.floats(0, 1),
    budget=st.floats(0.1, 4),
    jobs=st.integers(1, 48),
    shard=st.integers(64, 65536),
    gpus=st.integers(1, 8),
    per_gpu=st.integers(0, 200),
)
def test_never_more_shards_than_one_gpu_has(
    upper: int, smact: float | None, budget: float, jobs: int, shard: int, gpus: int, per_gpu: int
) -> None:
    shape = make_shape(a100(gpus=gpus, shards=per_gpu * gpus))
    decision = ask(shape, upper_mib=upper, smact=smact, rules=Rules(Sizing(shard, jobs, budget)))
    if decision.action is Action.COLLOCATE:
        assert 1 <= decision.shards < per_gpu
        assert decision.shards * shard >= upper
    assert decision == ask(
        shape, upper_mib=upper, smact=smact, rules=Rules(Sizing(shard, jobs, budget))
    )


@pytest.mark.parametrize(
    ("mode", "shares"),
    [("OFF", True), ("REQUEUE", True), ("CANCEL", True), ("SUSPEND,GANG", False), ("GANG", False)],
)
def test_a_partition_that_suspends_is_not_shared(mode: str, shares: bool) -> None:
    parts = (PartitionShape("main", default=True, preempt_mode=mode), PartitionShape("other"))
    decided = ask(make_shape(a100(), partitions=parts))
    assert (decided.action is Action.COLLOCATE) is shares
    assert shares or decided.reason is Reason.SUSPENDS
