# SPDX-License-Identifier: Apache-2.0
"""Several GPUs, one a task: decision, request, recovery's goal, and what binds such a job."""

from dataclasses import replace

import pytest

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
from slurm_coloc.core.decide.rewrite import exclusive_tres, rewrite
from slurm_coloc.core.recover.array_tasks import Share, new_request
from slurm_coloc.core.recover.outcome import Outcome
from slurm_coloc.core.recover.recovery import Goal, Step, next_step
from slurm_coloc.core.slurm.binding import Gpu, Need, NodeUse, binding, binding_text
from slurm_coloc.core.slurm.cluster import MULTI_GPU_PARAMETER, ClusterShape, NodeShape
from slurm_coloc.core.slurm.gres import gpu_request, same_gres, task_bind, update_fields, with_pin
from slurm_coloc.core.slurm.job import JobView
from tests.unit.core.conftest import a100, h100, make_shape

TWO = JobRequest(1, num_tasks=2, tres_per_task="gres/gpu=1", tres_bind="gres/gpu:per_task:1")
ONE = JobRequest(1, tres_per_node="gres/gpu:1")
PLAIN = Rules(Sizing())


def site(*nodes: NodeShape, release: tuple[int, ...] = (24, 11, 5)) -> ClusterShape:
    """A cluster on which a job may have shards of several GPUs."""
    shape = make_shape(*(nodes or (a100(gpus=4, shards=4 * 39, cpus=32),)), release=release)
    return replace(shape, select_params=frozenset({"CR_CORE_MEMORY", MULTI_GPU_PARAMETER}))


def ask(
    request: JobRequest, shape: ClusterShape, upper_mib: int = 11_900, rules: Rules = PLAIN
) -> Decision:
    question = Question(request, Estimate("text", upper_mib, upper_mib))
    return decide(question, shape, rules)


def test_a_gpu_a_task_is_shared_on_each() -> None:
    decision = ask(TWO, site())
    assert (decision.action, decision.shards, decision.gpus) == (Action.COLLOCATE, 12, 2)
    assert "each of 2 GPUs" in decision.why
    assert rewrite(TWO, decision, site()).fields == {
        "tres_per_task": "gres/shard:12",
        "tres_bind": "gres/shard:per_task:12",
        "one_task_per_sharing": 1,
        "min_nodes": 1,
        "max_nodes": 1,
        "requeue": 1,
    }
    assert exclusive_tres(TWO, site()) == "per-task:gres/gpu:1"


def test_a_job_that_named_no_gpu_gets_a_whole_one_as_slurm_spells_it() -> None:
    alone = Decision(Action.EXCLUSIVE, Reason.LIMIT)
    assert rewrite(JobRequest(1), alone, site()).fields == {"tres_per_node": "gres/gpu:1"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tres_per_job": "gres/gpu:2"}, Reason.FITS),
        ({"tres_per_job": "gres/gpu:2", "tres_per_task": None}, Reason.MULTI_GPU),
        ({"tres_per_node": "gres/gpu:2", "tres_per_task": None}, Reason.MULTI_GPU),
        ({"tres_per_task": "gres/gpu:2"}, Reason.MULTI_GPU),
        ({"tres_per_job": "gres/gpu:4"}, Reason.MULTI_GPU),
        ({"min_nodes": 2}, Reason.MULTI_GPU),
        ({"ntasks_per_node": 1}, Reason.MULTI_GPU),
        ({"tres_bind": "gres/gpu:none"}, Reason.GPU_OPTIONS),
        ({"tres_bind": "gpu:single:1"}, Reason.FITS),
        ({"kind": "salloc", "batch": False}, Reason.MULTI_GPU),
        ({"exclusive_node": True}, Reason.WHOLE_NODE),
        ({"num_tasks": 5}, Reason.NO_SHARED_GPU),
        ({"num_tasks": 4, "cpus_per_tres": "gres/gpu:20"}, Reason.MANY_TASKS),
    ],
)
def test_which_spellings_share(changes: dict[str, object], reason: Reason) -> None:
    assert ask(replace(TWO, **changes), site()).reason is reason  # type: ignore[arg-type]


def test_a_site_that_cannot_says_what_is_missing(shape: ClusterShape) -> None:
    decision = ask(TWO, shape)
    assert (decision.action, decision.reason) == (Action.EXCLUSIVE, Reason.MULTI_GPU_SITE)
    assert MULTI_GPU_PARAMETER in decision.why
    assert rewrite(TWO, decision, shape).fields == {}
    assert ask(TWO, site(release=(23, 11, 10))).reason is Reason.MULTI_GPU_SITE


def test_per_gpu_options_are_those_of_each_task() -> None:
    request = replace(TWO, cpus_per_tres="gres/gpu:3", mem_per_tres="gres/gpu:500")
    fields = rewrite(request, ask(request, site()), site()).fields
    assert (fields["cpus_per_task"], fields["min_mem_per_node"]) == (3, 1000)
    assert (fields["cpus_per_tres"], fields["mem_per_tres"]) == ("", "")


def test_what_else_stands_per_task_is_kept() -> None:
    request = replace(TWO, tres_per_task="cpu=3,gres/gpu=1", cpus_per_task=3)
    fields = rewrite(request, ask(request, site()), site()).fields
    assert fields["tres_per_task"] == "gres/shard:12,cpu=3"
    assert exclusive_tres(request, site()) == "per-task:gres/gpu:1,cpu=3"


def test_only_a_node_with_so_many_gpus_counts() -> None:
    """The small card is too few on its node: sized for the larger one."""
    mixed = site(a100(gpus=1, shards=39), h100("n2", gpus=2, shards=2 * 79))
    decision = ask(TWO, mixed, upper_mib=60_000)
    assert (decision.shards, decision.shards_per_gpu, decision.gpu_type) == (59, 79, None)


def test_where_slurm_splits_shares_one_gpu_is_asked_for_per_task_too() -> None:
    decision = ask(ONE, site())
    assert (decision.action, decision.gpus) == (Action.COLLOCATE, 1)
    fields = rewrite(ONE, decision, site()).fields
    assert fields["tres_per_task"] == "gres/shard:12"
    assert (fields["tres_per_node"], fields["num_tasks"]) == ("", 1)
    assert exclusive_tres(ONE, site()) == "per-task:gres/gpu:1"
    assert ask(replace(ONE, num_tasks=2), site()).reason is Reason.SPLIT_SHARE
    assert ask(replace(ONE, kind="salloc"), site()).reason is Reason.SPLIT_SHARE
    assert ask(ONE, site(release=(23, 11, 10))).reason is Reason.MULTI_GPU_SITE


def test_a_pin_per_task_and_its_update() -> None:
    assert with_pin("per-task:gres/shard:12", 12, "a100-1") == "per-task:gres/shard:a100-1:12"
    assert with_pin("per-task:gres/gpu:1,gres/nic:1", 5) == "per-task:gres/shard:5,gres/nic:1"
    assert with_pin("gres/shard:a100-1:12", 12) == "gres/shard:12"
    assert update_fields("gres/shard:12") == {"TresPerNode": "gres/shard:12"}
    assert update_fields("per-task:gres/shard:a100-1:12") == {
        "TresPerTask": "gres/shard:a100-1:12",
        "TresBind": "gres/shard:per_task:12",
    }


def test_only_slurm_chooses_several_gpus() -> None:
    """Where users are kept apart by pins alone they are whole ones."""
    pins = replace(PLAIN, share_with="user", steered=frozenset({"n1"}))
    alone = ask(TWO, site(), rules=pins)
    assert alone.reason is Reason.SHARING_WITH
    assert "no share of several GPUs" in alone.detail
    assert ask(ONE, site(), rules=pins).action is Action.COLLOCATE
    anyone = replace(pins, share_with="anyone")
    assert ask(TWO, site(), rules=anyone).action is Action.COLLOCATE
    shape = site()
    apart = replace(
        shape, partitions=tuple(replace(one, exclusive_user=True) for one in shape.partitions)
    )
    assert ask(TWO, apart, rules=pins).action is Action.COLLOCATE


def test_demand() -> None:
    assert TWO.demand.one_per_task
    assert not ONE.demand.one_per_task
    typed = replace(TWO, tres_per_task="cpu=2,gres/gpu:a100=1").demand
    assert (typed.one_per_task, typed.total, typed.type) == (True, 2, "a100")


def test_requests_as_slurm_shows_them() -> None:
    assert gpu_request("gres/shard:5", "cpu=3") == "gres/shard:5"
    assert gpu_request("", "cpu=3,gres/shard:5") == "per-task:gres/shard:5"
    assert same_gres("per-task:gres/gpu:1,cpu=3", gpu_request("", "cpu=3,gres/gpu=1"))
    assert not same_gres("per-task:gres/gpu:1", "gres/gpu:1")
    assert task_bind("cpu=2,gres/shard:a100:12") == "gres/shard:per_task:12"
    assert task_bind("cpu=2") == ""


def test_recovery_restores_the_request_per_task() -> None:
    goal = Goal(0, "per-task:gres/gpu:1")
    held = JobView(7, "PENDING", restarts=1, tres_per_task="gres/shard:12")
    assert next_step(held, goal) is Step.SET_GRES
    assert next_step(replace(held, tres_per_task="gres/gpu:1"), goal) is Step.RELEASE


def test_what_binds_is_counted_on_so_many_gpus() -> None:
    node = NodeUse("n1", ("main",), True, 32, 0, 1000, 0, "a100", (Gpu(30, 39), Gpu(0, 39)))
    found = binding(Need(shards=12, shared_gpus=2), ("main",), (node,))
    assert "12 shards on each of 2 GPUs needed, 9 free" in binding_text(found)
    assert binding(Need(shards=9, shared_gpus=2), ("main",), (node,)).shorts == ()
    never = binding(Need(shards=9, shared_gpus=3), ("main",), (node,))
    assert not never.possible


def test_waiting_siblings_are_resized_per_task() -> None:
    share = Share("per-task:gres/shard:a100:12", "per-task:gres/gpu:a100:1", 12, 1024, 39)
    whole = "per-task:gres/gpu:a100:1"
    assert new_request(Outcome.OOM_GPU, share, grown=whole) == whole
    grown = new_request(Outcome.COMPLETED, share, [13 * 1024])
    assert grown == "per-task:gres/shard:a100:15"
