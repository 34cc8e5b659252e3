# SPDX-License-Identifier: Apache-2.0
"""Who waits at the gate keeps his age, and nobody stays shut out by a constraint of ours.

On real daemons: tests/cluster/test_age.py.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.store import Store
from slurm_coloc.admin.rules.finding import Status
from slurm_coloc.admin.rules.placement import gate
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.core.place.gate_wait import Way, age_counts, way_of
from slurm_coloc.core.slurm.binding import Gpu
from slurm_coloc.flow.cluster.context import ShareRequest
from slurm_coloc.flow.place.memory import key
from tests.unit.flow.placers import (
    AGES,
    CHANGE,
    ID,
    JOB,
    REQUEST,
    SHAPE,
    SHARE,
    Slurm,
    Update,
    crowded,
    placement,
    placer,
    run,
    submitted,
)

MULTIFACTOR = {"PriorityType": "priority/multifactor", "PriorityWeightAge": "1000"}


@pytest.mark.parametrize(
    ("conf", "counts"),
    [
        (MULTIFACTOR, True),
        ({**MULTIFACTOR, "PriorityWeightAge": "0"}, False),
        ({**MULTIFACTOR, "PriorityFlags": "ACCRUE_ALWAYS,FAIR_TREE"}, False),
        ({**MULTIFACTOR, "PriorityType": "priority/basic"}, False),
        ({}, False),
    ],
)
def test_whether_a_start_time_costs_age(conf: dict[str, str], counts: bool) -> None:
    assert age_counts(conf) is counts


def test_ways_to_wait() -> None:
    assert way_of(SHAPE) is Way.START
    assert way_of(AGES) is Way.EXTRA
    assert way_of(replace(AGES, constraints=False)) is Way.NONE


SHUT = "smact<1&((coloc>=1&coloc<=2))"


def test_doctor_tells_where_there_is_no_gate() -> None:
    without = replace(AGES, constraints=False)
    found = [gate(shape, 0.8).status for shape in (SHAPE, AGES, without)]
    assert found == [Status.OK, Status.OK, Status.WARN]
    assert "extra_constraints" in gate(without, 0.8).todo
    assert gate(without, 1.0).status is Status.OK, "none is wanted"


def test_where_age_counts_the_gate_is_a_constraint(store: Store, tmp_path: Path) -> None:
    """Put beside the owner's own, and taken away again (core/place/gate_wait)."""
    slurm = Slurm(JOB)
    slurm.extras["7"] = "rack=b7"
    crowded(slurm)
    one = placement(store, slurm, tmp_path, smact_gate=0.05)
    run(one)
    assert slurm.updates == [], "the nodes had no figures yet"
    run(one)
    assert slurm.updates == [("7", {"Extra": f"(rack=b7)&{SHUT}"})]
    slurm.jobs = [replace(JOB, reason="Constraints")]
    run(one, 3)
    assert len(slurm.updates) == 1, "it needs no renewal"
    slurm.uses = [replace(use, gpus=(Gpu(0, 39), Gpu(0, 39))) for use in slurm.uses]
    run(one)
    pin: Update = {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"}
    assert slurm.updates[1:] == [("7", {**pin, "Extra": "rack=b7"})]


def test_a_restart_knows_who_waits_at_the_gate(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(replace(JOB, reason="Constraints"))
    slurm.extras["7"] = SHUT
    crowded(slurm)
    run(placement(store, slurm, tmp_path, smact_gate=0.05), 3)
    assert slurm.updates == []
    run(placement(store, slurm, tmp_path), 3)
    assert slurm.updates[0][1]["Extra"] == "smact>=0"
    slurm.updates, slurm.extras["7"] = [], SHUT
    run(placement(store, slurm, tmp_path, mode="native"), 2)
    assert slurm.updates == [("7", {"Extra": "smact>=0"})]


def test_native_s_own_gate_stays(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(replace(JOB, reason="Constraints"))
    slurm.extras["7"] = "smact<80&(coloc=1)"
    run(placement(store, slurm, tmp_path, mode="native", node_gate=True), 2)
    assert slurm.updates == []


@pytest.mark.parametrize("mode", ["native", "steered"])
@pytest.mark.parametrize(
    "change",
    [{"reason": "BadConstraints", "priority": 0}, {"tres_per_node": "gres/gpu:1", "restarts": 1}],
)
def test_whom_a_constraint_hinders_is_freed(
    store: Store, tmp_path: Path, mode: str, change: dict[str, Any]
) -> None:
    """Slurm took it for impossible, or a recovery made it a job for a whole GPU."""
    slurm = Slurm(replace(JOB, **change))
    slurm.extras["7"] = "smact<80&(coloc=1)"
    run(placement(store, slurm, tmp_path, mode=mode, node_gate=True), 3)
    assert slurm.updates == [("7", {"Extra": "smact>=0"})]


def test_who_is_impossible_by_himself_stays_so(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(replace(JOB, reason="BadConstraints", priority=0))
    slurm.extras["7"] = "rack=b9"
    run(placement(store, slurm, tmp_path), 3)
    assert slurm.updates == []


def test_where_waiting_costs_age_there_is_no_gate(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(JOB)
    crowded(slurm)
    run(placement(store, slurm, tmp_path, replace(AGES, constraints=False), smact_gate=0.05))
    assert slurm.updates[0][1]["TresPerNode"] == "gres/shard:a100-0:12"


def test_a_submission_waits_with_its_age_too(store: Store, tmp_path: Path) -> None:
    slurm = Slurm()
    crowded(slurm)
    one = placement(store, slurm, tmp_path, smact_gate=0.05)

    async def go() -> Rewrite:
        await one.round()
        found = one.at_submit(ShareRequest(ID, REQUEST, SHARE, 0.2, CHANGE))
        await asyncio.gather(*one._placer._recording.writes)
        return found

    assert asyncio.run(go()).fields == {**CHANGE.fields, "extra": SHUT}
    # The gate is open at the next look, and Slurm has not looked at the job yet.
    slurm.jobs, slurm.extras["7"] = [replace(JOB, reason="Priority")], SHUT
    slurm.uses = [replace(use, gpus=(Gpu(0, 39), Gpu(0, 39))) for use in slurm.uses]
    run(one)
    pin: Update = {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"}
    assert slurm.updates == [("7", {**pin, "Extra": "smact>=0"})]


def test_an_owner_s_own_start_time_stays(store: Store, tmp_path: Path) -> None:
    """The job was submitted with --begin while every GPU was busy: the hook keeps that time."""
    slurm = Slurm()
    crowded(slurm)
    one = placer(store, slurm, tmp_path, smact_gate=0.05)
    (found,) = submitted(one, REQUEST)
    assert "begin_time" in found
    slurm.jobs = [replace(JOB, reason="BeginTime", start_s=time.time() + 3600)]
    slurm.uses = [replace(use, gpus=(Gpu(0, 39), Gpu(0, 39))) for use in slurm.uses]
    run(one, 2)
    assert slurm.updates == []


def test_a_start_time_that_an_owner_set_at_the_gate_stays(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(JOB)
    crowded(slurm)
    one = placer(store, slurm, tmp_path, smact_gate=0.05)
    run(one)
    assert slurm.updates == [("7", {"StartTime": "now+16"})]
    slurm.jobs = [replace(JOB, reason="BeginTime", start_s=time.time() + 3600)]
    slurm.uses = [replace(use, gpus=(Gpu(0, 39), Gpu(0, 39))) for use in slurm.uses]
    run(one, 2)
    assert len(slurm.updates) == 1


@pytest.mark.parametrize(("interval_s", "ahead_s"), [(1.0, 15), (5.0, 15), (20.0, 60)])
def test_a_round_that_comes_late_lets_no_job_start(
    store: Store, tmp_path: Path, interval_s: float, ahead_s: int
) -> None:
    """A start time is three rounds ahead, and 15 s at least: on a busy machine a round of
    a second came four seconds late. It is renewed when a third has gone."""
    slurm = Slurm(JOB)
    crowded(slurm)
    one = placer(store, slurm, tmp_path, smact_gate=0.05, interval_s=interval_s)
    wait = ("7", {"StartTime": f"now+{ahead_s + 1}"})
    run(one)
    assert slurm.updates == [wait]
    for gone, known in ((0.2, 1), (0.4, 2)):
        one._memory.waits_until[key(JOB)] = time.time() + (1 - gone) * ahead_s
        run(one)
        assert slurm.updates == [wait] * known
