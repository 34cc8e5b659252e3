# SPDX-License-Identifier: Apache-2.0
"""Jobs of several nodes with one GPU of each: what shares, and how the request changes."""

from dataclasses import replace
from typing import Any

import pytest

from slurm_coloc.core.decide.decide import decide
from slurm_coloc.core.decide.decision import Action, Decision, Estimate, Question, Reason, Rules
from slurm_coloc.core.decide.request import JobRequest
from slurm_coloc.core.decide.rewrite import exclusive_tres, rewrite
from slurm_coloc.core.slurm.cluster import ClusterShape
from tests.unit.core.conftest import a100, make_shape
from tests.unit.core.test_decide import RULES

TWO = JobRequest(uid=1000, min_nodes=2, max_nodes=2, ntasks_per_node=1, tres_per_node="gres/gpu:1")
ESTIMATE = Estimate("text", 11_000, 11_900)
NODES = make_shape(a100(), a100("n2"), a100("n3"))


def ask(request: JobRequest, shape: ClusterShape = NODES, rules: Rules = RULES) -> Decision:
    return decide(Question(request, ESTIMATE), shape, rules)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_tasks": 2},
        {"num_tasks": 2, "ntasks_per_node": None},
        {"tres_per_node": None, "tres_per_task": "gres/gpu:1", "num_tasks": 2},
        {"min_nodes": 3, "max_nodes": 3},
        {"min_nodes": None, "max_nodes": None, "num_tasks": 2},
        {"array": "0-3"},
    ],
)
def test_one_gpu_of_each_node_is_shared(changes: dict[str, Any]) -> None:
    request = replace(TWO, **changes)
    decision = ask(request)
    count = changes.get("min_nodes") or 2
    assert (decision.action, decision.gpus) == (Action.COLLOCATE, count)
    change = rewrite(request, decision, NODES)
    assert change.fields["tres_per_node"] == f"gres/shard:{decision.shards}"
    assert (change.fields["min_nodes"], change.fields["max_nodes"]) == (count, count)
    assert change.fields.get("tres_per_task", "") == ""
    assert exclusive_tres(request, NODES).startswith("gres/gpu:")


@pytest.mark.parametrize(
    "changes",
    [
        {"tres_per_node": "gres/gpu:2"},
        {"num_tasks": 4, "ntasks_per_node": 2},
        {"max_nodes": 4},
        {"tres_per_node": None, "tres_per_job": "gres/gpu:2", "ntasks_per_node": None},
        {"kind": "salloc"},
    ],
)
def test_other_jobs_of_several_nodes_get_whole_gpus(changes: dict[str, Any]) -> None:
    decision = ask(replace(TWO, **changes))
    assert (decision.action, decision.reason) == (Action.EXCLUSIVE, Reason.MULTI_GPU)


def test_too_few_nodes_that_share() -> None:
    one = make_shape(a100(), a100("n2", shards=0))
    assert ask(TWO, one).action is Action.EXCLUSIVE


def test_where_colocd_places_shares_it_places_none_of_several_nodes() -> None:
    steered = replace(RULES, steered=frozenset({"n1", "n2", "n3"}))
    assert ask(TWO, rules=steered).reason is Reason.MULTI_GPU


def test_what_is_asked_for_a_gpu_is_asked_for_on_each_node() -> None:
    request = replace(TWO, mem_per_tres="gres/gpu:4000", cpus_per_tres="gres/gpu:4")
    change = rewrite(request, ask(request), NODES)
    assert change.fields["min_mem_per_node"] == 4000
    assert change.fields["cpus_per_task"] == 4


def test_it_is_one_training_of_a_process_for_each_node() -> None:
    assert TWO.demand.processes == 2
