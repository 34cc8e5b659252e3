# SPDX-License-Identifier: Apache-2.0
"""Requests by a model of GPUs where each GPU has a type of its own: a feature stands for the model,
with --coloc and without."""

import pytest

from tests.unit.lua.conftest import Hook, spank, submit
from tests.unit.lua.peer import GOOD, answering
from tests.unit.lua.test_coloc_lua_bounds import rep


@pytest.fixture
def steered(hook: Hook) -> Hook:
    hook.setup["steered"] = "a100, h100"
    return hook


@pytest.mark.parametrize(
    ("asked", "becomes"),
    [
        ("gres/gpu:a100:2", "gres/gpu:2"),
        ("gres/gpu:a100", "gres/gpu:1"),
        ("gres/gpu:a100=1", "gres/gpu=1"),
        ("gres/gpu:a100:1,gres/tmp:5", "gres/gpu:1,gres/tmp:5"),
        ("cpu=4,gres/gpu:a100:1", "cpu=4,gres/gpu:1"),
    ],
)
def test_the_model_becomes_a_feature(steered: Hook, asked: str, becomes: str) -> None:
    fields = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket")
    for result, field in zip(
        steered.run(*(submit(**{field: asked}) for field in fields)), fields, strict=True
    ):
        assert (result.rc, result.error, result.user) == (0, [], [])
        assert result.fields[field] == becomes
        assert result.fields["features"] == "a100"


@pytest.mark.parametrize(
    ("present", "becomes"),
    [
        ("ib", "ib&a100"),
        ("a100", "a100"),
        ("ib&a100", "ib&a100"),
        ("v3|v4", "(v3|v4)&a100"),
        ("a100|h100", "(a100|h100)&a100"),
    ],
)
def test_beside_other_features(steered: Hook, present: str, becomes: str) -> None:
    (r,) = steered.run(submit(tres_per_node="gres/gpu:a100:1", features=present))
    assert r.fields["features"] == becomes


@pytest.mark.parametrize(
    ("tres", "features"),
    [
        ("gres/gpu:a100:1", "[rack1*2&rack2*2]"),
        ("gres/gpu:a100:1,gres/gpu:h100:1", ""),
    ],
)
def test_what_cannot_be_rewritten_is_told(steered: Hook, tres: str, features: str) -> None:
    (r,) = steered.run(submit(tres_per_node=tres, features=features))
    assert r.rc == 0
    assert r.fields["tres_per_node"] == tres
    assert "the GPU's type stays as it is" in r.user[0]


def test_others_stay_as_they_are(steered: Hook) -> None:
    asked = ("gres/gpu:1", "gres/gpu:v100:1", "gres/gpu:a100-1:1", "gres/gpu", "gres/tmp:a100:1")
    for r, tres in zip(
        steered.run(*(submit(tres_per_node=tres) for tres in asked)), asked, strict=True
    ):
        assert (r.rc, r.fields["tres_per_node"], r.fields.get("features", "")) == (0, tres, "")


def test_what_an_inner_srun_reads_back(steered: Hook) -> None:
    env = {"SLURM_GPUS": "a100:2", "SLURM_GPUS_PER_NODE": "2", "SLURM_GPUS_PER_TASK": "a100",
           "SLURM_TRES_PER_TASK": "cpu=1,gres/gpu:a100=1"}  # fmt: skip
    (r,) = steered.run(
        submit(tres_per_job="gres/gpu:a100:2", script="#!/bin/sh\n", environment=env)
    )
    assert r.env == {"SLURM_GPUS": "2", "SLURM_GPUS_PER_NODE": "2", "SLURM_GPUS_PER_TASK": "1",
                     "SLURM_TRES_PER_TASK": "cpu=1,gres/gpu=1"}  # fmt: skip


def test_colocd_sees_the_feature(steered: Hook) -> None:
    peer = steered.serve(answering(GOOD))
    (r,) = steered.run(submit(**spank(SUMMARY="x"), tres_per_node="gres/gpu:a100:1"))
    assert r.called
    asked = peer.requests[0]
    assert (asked["tres_per_node"], asked["features"]) == ("gres/gpu:1", "a100")


def test_a_pin_in_the_answer(steered: Hook) -> None:
    pin = {**GOOD, "set.tres_per_node": "gres/shard:a100-1:7", "set.req_nodes": "n1"}
    steered.serve(answering(pin), answering({**GOOD, "set.begin_time": "4000000000"}))
    first, second = steered.run(*[submit(**spank(SUMMARY="x")) for _ in range(2)])
    assert first.fields["tres_per_node"] == "gres/shard:a100-1:7"
    assert first.fields["req_nodes"] == "n1"
    assert second.fields["begin_time"] == "4000000000"


def test_a_start_time_of_the_user_stays(steered: Hook) -> None:
    steered.serve(answering({**GOOD, "set.begin_time": "4000000000"}))
    (r,) = steered.run(submit(**spank(SUMMARY="x"), begin_time=4100000000))
    assert (r.error, r.fields["begin_time"]) == ([], "4100000000")


def test_an_error_leaves_the_job(hook: Hook) -> None:
    hook.setup["steered"] = "a100"
    (r,) = hook.run(submit(fails=["features"], tres_per_node="gres/gpu:a100:1"))
    assert (r.rc, r.fields["tres_per_node"]) == (0, "gres/gpu:a100:1")


def test_switched_off(steered: Hook) -> None:
    steered.folder.joinpath("off").touch()
    (r,) = steered.run(submit(tres_per_node="gres/gpu:a100:1"))
    assert r.fields["tres_per_node"] == "gres/gpu:a100:1"


def test_a_constraint_of_megabytes(steered: Hook) -> None:
    """Anybody's: without --coloc. It costs no more than looking at its length."""
    steered.measure = True
    asked = [submit(tres_per_node="gres/gpu:a100:1", features=text)
             for text in (b"x" * 4000, rep(b"a&", 5_000_000))]  # fmt: skip
    fair, found = steered.run(*asked)
    assert fair.fields["tres_per_node"] == "gres/gpu:1"
    assert found.work["instructions"] <= 2 * fair.work["instructions"], found.work
    assert found.rc == 0 and found.fields["tres_per_node"] == "gres/gpu:a100:1"
    assert "the constraint is too long" in found.user[0]
