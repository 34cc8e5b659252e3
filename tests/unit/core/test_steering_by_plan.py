# SPDX-License-Identifier: Apache-2.0
"""A plan of the whole queue, carried out: each start is checked by what is so now, and only equal
jobs go first."""

import math
from dataclasses import replace
from typing import Any

import pytest

from slurm_coloc.core.place.steering import Act, Answer, Planned, Running, Snapshot, Why
from slurm_coloc.core.place.steering.gpus import GpuPlan
from slurm_coloc.core.records.pairs import PairSpeed
from slurm_coloc.planning.live import GPUS, PARTS, STALE_S, Planner
from slurm_coloc.planning.schedules.native import built
from slurm_coloc.policies import policy
from tests.unit.core.test_steering import GIB, answers, device, node, waiting, whole, world

searches = pytest.mark.skipif(not built(), reason="its search was not built: no C compiler")


def planned(*jobs: Any, plan: dict[int, tuple[int, bool]], **values: Any) -> dict[int, Answer]:
    """The answers with a plan: the GPU of each job, and whether it starts now."""
    spots = tuple(Planned(job_id, (gpu,), now) for job_id, (gpu, now) in plan.items())
    rules = {"reorder": True} | values.pop("rules", {})
    return answers(world(*jobs, plan=spots, rules=rules, **values))


def test_the_plan_says_where() -> None:
    found = planned(waiting(1), waiting(2), plan={1: (1, True), 2: (1, True)})
    assert [(one.pin.kind if one.pin else "", one.why) for one in found.values()] == [
        ("a100-1", Why.PLAN),
        ("a100-1", Why.PLAN),
    ]


def test_the_gate_is_for_those_who_have_no_plan() -> None:
    busy = (device(0, used=5, smact=0.9), device(1, used=5, smact=0.9))
    found = planned(waiting(1), waiting(2), nodes=(node("n1", *busy),), plan={1: (1, True)})
    assert (found[1].why, found[2].why) == (Why.PLAN, Why.GATE)


@pytest.mark.parametrize(
    "there",
    [device(1, used=35), device(1, used=5, free_mib=4 * GIB), device(1, closed=True, used=5)],
    ids=["no-shards", "no-memory", "closed"],
)
def test_what_no_longer_holds_is_left_to_the_policy(there: Any) -> None:
    found = planned(waiting(1), nodes=(node("n1", device(0), there),), plan={1: (1, True)})
    assert found[1].pin is not None
    assert (found[1].pin.kind, found[1].why) == ("a100-0", Why.POLICY)


@pytest.mark.parametrize("used", [0, 5], ids=["idle", "shared"])
def test_it_waits_until_telemetry_forgets_who_was_there(used: int) -> None:
    """A job has just ended on the GPU that the plan wants, and its memory shows there still."""
    full = device(1, used=used, free_mib=4 * GIB)
    snapshot = world(
        waiting(1), nodes=(node("n1", device(0), full),), plan=(Planned(1, (1,), True, True),),
        rules={"reorder": True},
    )  # fmt: skip
    assert answers(snapshot)[1] == Answer(1, Act.WAIT, Why.PLANNED)
    room = device(1, free_mib=20 * GIB)
    behind = replace(snapshot, nodes=(node("n1", room),), waiting=(waiting(1, 30), waiting(2, 15)))
    behind = replace(behind, plan=(Planned(1, (0,), True, True),))
    found = answers(behind)
    assert found[1].act is Act.WAIT and found[2].pin is None, "nobody takes its room meanwhile"
    due = tuple(replace(job, due_s=snapshot.at_s) for job in snapshot.waiting)
    late = answers(replace(snapshot, waiting=due))[1]
    assert late.pin is not None and late.pin.kind == "a100-0"


@pytest.mark.parametrize(("idle_first", "expected"), [(True, "a100-1"), (False, "a100-0")])
def test_no_job_is_slowed_while_a_gpu_is_idle(idle_first: bool, expected: str) -> None:
    there = Running(7, 1000, "n1", (0,), 10, start_s=0.0, smact=0.4)
    found = planned(
        waiting(1),
        nodes=(node("n1", device(0, used=10), device(1)),),
        running=(there,),
        plan={1: (0, True)},
        rules={"idle_first": idle_first},
    )
    assert found[1].pin is not None and found[1].pin.kind == expected


def test_an_idle_gpu_that_another_job_gets_is_none() -> None:
    there = Running(7, 1000, "n1", (0,), 10, start_s=0.0, smact=0.4)
    found = planned(
        waiting(1),
        waiting(2),
        nodes=(node("n1", device(0, used=10), device(1)),),
        running=(there,),
        plan={1: (0, True), 2: (1, True)},
        rules={"idle_first": True},
    )
    assert [one.pin.kind for one in found.values() if one.pin] == ["a100-0", "a100-1"]


def test_one_user_s_later_job_may_go_first() -> None:
    found = planned(waiting(1), waiting(2), plan={1: (0, False), 2: (0, True)})
    assert found[1] == Answer(1, Act.WAIT, Why.PLANNED)
    assert found[2].act is Act.PIN


@pytest.mark.parametrize(
    ("first", "rules"),
    [
        ({"uid": 1001}, {}),  # another user's job would pass it
        ({"account": "other"}, {}),
        ({"tier": 2}, {}),
        ({"due_s": 999.0}, {}),  # without sharing it would run by now
        ({}, {"reorder": False}),
    ],
)
def test_else_no_job_waits_for_a_plan(first: dict[str, Any], rules: dict[str, Any]) -> None:
    jobs = (replace(waiting(1), **first), waiting(2))
    found = planned(*jobs, plan={1: (0, False), 2: (0, True)}, rules=rules)
    assert found[1].act is Act.PIN


def test_a_job_that_waits_holds_no_other_back() -> None:
    """A blocked job reserves the GPUs that it waits for; one that only the plan holds does not."""
    jobs = (waiting(1, 30), waiting(2, 30), waiting(3, 30))
    found = planned(*jobs, plan={1: (0, False), 2: (0, True), 3: (1, True)})
    assert [found[one].act for one in (1, 2, 3)] == [Act.WAIT, Act.PIN, Act.PIN]


def test_a_job_on_whole_gpus_waits_for_its_owner_s_shares() -> None:
    """It reserves nothing meanwhile; once its turn comes it is Slurm's again."""
    jobs = whole(1, 2, holdable=True), waiting(2, 30)
    found = planned(*jobs, plan={1: (0, False), 2: (0, True)})
    assert found[1] == Answer(1, Act.WAIT, Why.PLANNED)
    assert (found[2].act, found[2].why) == (Act.PIN, Why.PLAN)
    assert planned(*jobs, plan={1: (0, True), 2: (0, False)})[1] == Answer(1, Act.NATIVE, Why.PLAN)


def test_so_many_wait_at_most() -> None:
    """Each wait may be an update of the job every few seconds."""
    jobs = [whole(number, 2, holdable=True) for number in range(1, 5)]
    plan = dict.fromkeys(range(1, 5), (0, False))
    found = planned(*jobs, plan=plan, rules={"ahead": 2})
    assert [one.act for one in found.values()] == [Act.WAIT] * 2 + [Act.NATIVE] * 2


@pytest.mark.parametrize("change", [{"holdable": False}, {"uid": 1001}, {"due_s": 999.0}])
def test_else_a_job_on_whole_gpus_is_slurm_s(change: dict[str, Any]) -> None:
    first = replace(whole(1, 2, holdable=True), **change)
    found = planned(first, waiting(2), plan={1: (0, False), 2: (0, True)})
    assert 1 not in found or found[1].act is Act.NATIVE


@pytest.mark.parametrize("whole_first", [False, True])
def test_a_plan_takes_no_gpu_that_a_job_before_it_waits_for(whole_first: bool) -> None:
    """Another user's job wants both GPUs; one is idle, on the other a training ends in a minute."""
    there = Running(7, 1000, "n1", (0,), 10, start_s=0.0, ends_s=1060.0, smact=0.2)
    found = planned(
        replace(whole(1, 2), uid=1001),
        waiting(2),
        waiting(3),
        nodes=(node("n1", device(0, used=10), device(1)),),
        running=(there,),
        plan={1: (0, False), 2: (1, True), 3: (0, True)},
        rules={"whole_first": whole_first},
    )
    assert not any(one.why is Why.PLAN for one in found.values())


def made(snapshot: Snapshot, planner: Planner | None = None) -> dict[int, Planned]:
    """The plan for a snapshot."""
    found, why = (planner or Planner(policy("auto"))).planned(snapshot)
    assert why == ""
    return {one.job_id: one for one in found.plan}


@searches
def test_busy_jobs_are_kept_apart() -> None:
    jobs = [waiting(number, 10, smact=0.95, expected_s=1000.0) for number in (1, 2)]
    found = made(world(*jobs))
    assert {one.gpus for one in found.values()} == {(0,), (1,)}
    assert all(one.now for one in found.values())


@searches
def test_a_plan_keeps_to_the_nodes_that_a_job_may_get() -> None:
    nodes = (node("n1"), node("n2"))
    jobs = (waiting(1, nodes=("n2",)), waiting(2, nodes=("n1", "n2")))
    found = made(world(*jobs, nodes=nodes))
    assert set(found[1].gpus) <= {2, 3}


@searches
def test_the_job_that_ends_soon_is_waited_for() -> None:
    """A GPU of which a job's log says that it ends in a minute is better than one that is busy for
    hours."""
    there = (device(0, used=20, smact=0.9), device(1, used=20, smact=0.9))
    running = tuple(
        Running(job, 1000, "n1", (place,), 20, start_s=0.0, smact=0.9, left_s=left_s)
        for job, place, left_s in ((7, 0, 60.0), (8, 1, 20_000.0))
    )
    job = waiting(1, 10, smact=0.9, expected_s=9000.0)
    found = made(world(job, nodes=(node("n1", *there),), running=running))
    assert found[1].gpus == (0,)


@searches
@pytest.mark.parametrize("ended", [True, False])
def test_memory_of_a_job_that_has_just_ended_is_no_obstacle(ended: bool) -> None:
    """An idle GPU whose memory is taken: for a minute by who was there; else by a process that
    Slurm does not know, and no plan counts on that GPU."""
    full, planner = device(1, free_mib=4 * GIB), Planner(policy("auto"))
    busy = Running(7, 1000, "n1", (0,), 20, start_s=0.0, smact=0.9, left_s=9000.0)
    gone = Running(8, 1000, "n1", (1,), 20, start_s=0.0, smact=0.9, left_s=1.0)
    job = waiting(1, 10, smact=0.9, expected_s=3000.0)
    there = (device(0, used=20), replace(full, used=20) if ended else full)
    runs = (busy, gone) if ended else (busy,)
    made(world(job, nodes=(node("n1", *there),), running=runs), planner)
    snapshot = world(job, nodes=(node("n1", device(0, used=20), full),), running=(busy,))
    found = made(replace(snapshot, at_s=1010.0), planner)[1]
    assert (found.gpus == (1,), found.left) == (ended, ended)
    found = made(replace(snapshot, at_s=1100.0), planner)[1]
    assert found.gpus == (0,) and not found.left


def test_a_running_job_s_time_is_all_of_it() -> None:
    """What others like it take is not what is left of it."""
    there = Running(7, 1000, "n1", (0,), 10, start_s=400.0, left_s=300.0)
    plan = GpuPlan(world(nodes=(node("n1", device(0, used=10)),), running=(there,)), policy("auto"))
    (resident,) = plan.slots[0].residents
    assert resident.request.run_s == 900.0


def measured(card: str, well: str, speed: float = 1.0) -> list[PairSpeed]:
    """Of the trainings a, b and c on a card: two go ``well`` together, all others at 0.5."""
    return [
        PairSpeed(
            uid=1000,
            training=one,
            beside=other,
            card=card,
            method="mps",
            runs=20.0,
            log_speed=math.log(speed if {one, other} == set(well) else 0.5),
            at_s=0.0,
        )
        for one in "abc"
        for other in "abc"
    ]


@searches
@pytest.mark.parametrize("cards", [("A100", "T4"), ("T4", "A100")])
def test_what_a_pair_is_like_on_one_card_is_not_so_on_another(cards: tuple[str, str]) -> None:
    """a and b go well together on an A100, b and c nearly as well on a T4 alone."""
    jobs = [
        waiting(number, 10, smact=0.5, expected_s=3000.0, training=f"1000:{name}")
        for number, name in ((1, "a"), (2, "b"), (3, "c"))
    ]
    there = [replace(device(place), card=card) for place, card in enumerate(cards)]
    for better, other in (("A100", "T4"), ("T4", "A100")):
        planner = Planner(policy("auto"))
        planner.know(measured(better, "ab") + measured(other, "bc", 0.6))
        found = made(world(*jobs, nodes=(node("n1", *there),)), planner)
        assert found[1].gpus == found[2].gpus == (cards.index(better),)
        assert found[3].gpus == (cards.index(other),)


@searches
def test_pairs_that_were_measured_decide_who_goes_together() -> None:
    """By the model alone all three are alike; what was measured parts two of them."""
    jobs = [
        waiting(number, 10, smact=0.5, expected_s=3000.0, training=f"1000:{name}")
        for number, name in ((1, "a"), (2, "b"), (3, "c"))
    ]
    for first, other in (("a", "b"), ("b", "c"), ("a", "c")):
        planner = Planner(policy("auto"))
        planner.know(measured("", first + other))
        found = made(world(*jobs), planner)
        gpus = {name: found[number].gpus for number, name in ((1, "a"), (2, "b"), (3, "c"))}
        assert gpus[first] == gpus[other] and len(set(gpus.values())) == 2


@searches
def test_when_a_job_would_have_started_without_sharing() -> None:
    running = tuple(
        Running(job, 1000, "n1", (place,), 20, start_s=0.0, left_s=left_s)
        for job, place, left_s in ((7, 0, 100.0), (8, 1, 300.0))
    )
    there = (device(0, used=20), device(1, used=20))
    jobs = [waiting(1, expected_s=500.0), whole(2, 2, expected_s=50.0), waiting(3)]
    planner = Planner(policy("auto"))
    snapshot = world(*jobs, nodes=(node("n1", *there),), running=running)
    found, _ = planner.planned(snapshot)
    assert [job.due_s for job in found.waiting] == [1100.0, 1600.0, 1650.0]
    later = replace(snapshot, at_s=1050.0, running=running[1:])
    found, _ = planner.planned(later)  # as it was first seen
    assert [job.due_s for job in found.waiting] == [1100.0, 1600.0, 1650.0]


@searches
def test_a_log_that_claims_for_ever_moves_no_start() -> None:
    """No expected end is beyond the time limit."""
    liars = tuple(
        Running(job, 1001, "n1", (place,), 20, start_s=0.0, ends_s=1500.0, left_s=1e8)
        for job, place in ((7, 0), (8, 1))
    )
    there = (device(0, used=20), device(1, used=20))
    snapshot = world(waiting(1), nodes=(node("n1", *there),), running=liars)
    found, _ = Planner(policy("auto")).planned(snapshot)
    assert found.waiting[0].due_s == 1500.0
    planner = Planner(policy("auto"))
    planner.planned(world(waiting(2)))  # before they ran
    found, _ = planner.planned(snapshot)
    assert found.waiting[0].due_s == 1000.0 + 1500.0, "each takes its limit from its start on"


@searches
def test_a_plan_holds_until_something_happens() -> None:
    planner = Planner(policy("auto"))
    jobs = [waiting(number, 10, smact=0.5, expected_s=1000.0) for number in range(1, 9)]
    first = made(world(*jobs), planner)
    assert made(replace(world(*jobs), at_s=1000.0 + STALE_S / 2), planner) == first
    assert 9 in made(world(*jobs, waiting(9)), planner)


def large(nodes: int, **changes: Any) -> tuple[Any, ...]:
    """So many nodes of two GPUs."""
    return tuple(node(f"n{number}", **changes) for number in range(nodes))


@searches
def test_a_large_cluster_is_planned_in_parts() -> None:
    """Where there is room; who starts later is in no plan."""
    nodes = large(2 * GPUS)
    names = tuple(one.name for one in nodes)
    full = (device(0, whole=True), device(1, used=39))
    nodes = tuple(
        replace(one, devices=full) if number % 2 else one for number, one in enumerate(nodes)
    )
    jobs = [waiting(number, 10, nodes=names, smact=0.95) for number in range(1, 200)]
    found = made(world(*jobs, nodes=nodes))
    assert all(one.now for one in found.values())
    gpus = [one.gpus[0] for one in found.values()]
    assert all(gpu % 4 < 2 for gpu in gpus), "odd nodes have no room"
    assert len(set(gpus)) == 2 * GPUS, "each GPU that has room has a job"


@searches
def test_no_node_is_left_out_for_ever() -> None:
    nodes = large(GPUS * PARTS)
    planner, seen = Planner(policy("auto")), set()
    for look in range(3):
        jobs = [
            waiting(number, 30, nodes=tuple(one.name for one in nodes)) for number in range(1, 400)
        ]
        found = made(replace(world(*jobs, nodes=nodes), at_s=1000.0 + look * 2 * STALE_S), planner)
        seen |= {one.gpus[0] // 2 for one in found.values()}
    assert len(seen) == GPUS * PARTS
