# SPDX-License-Identifier: Apache-2.0
"""Steering, pure: never more than there is, Slurm's order kept, nothing sure pinned wrongly."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.admin.replay import replay
from slurm_coloc.core.place.steering import (
    Act,
    Answer,
    Device,
    Node,
    Pin,
    Rules,
    Running,
    Snapshot,
    Waiting,
    Why,
    steer,
)
from slurm_coloc.flow.place.recording import recorded
from slurm_coloc.policies import fresh, policy, registry

GIB = 1024


def device(place: int, **values: Any) -> Device:
    wish = {"shards": 39, "age_s": 5.0, "free_mib": 39 * GIB, "smact": 0.0} | values
    return Device(f"a100-{place}", **wish)


def node(name: str = "n1", *devices: Device, **values: Any) -> Node:
    found = devices or (device(0), device(1))
    return Node(name, found, **({"cpus": 64, "memory_mib": 500_000} | values))


def waiting(job_id: int, shards: int = 10, **values: Any) -> Waiting:
    wish = {"gpus": 1, "nodes": ("n1",), "ours": True, "run_s": 3600.0, "smact": 0.2} | values
    return Waiting(job_id, str(job_id), 1000, shards=shards, **wish)


def whole(job_id: int, gpus: int = 1, **values: Any) -> Waiting:
    return waiting(job_id, 0, ours=False, gpus=gpus, **values)


def world(*jobs: Waiting, nodes: tuple[Node, ...] = (), **values: Any) -> Snapshot:
    # Whose the jobs are is tests/unit/core/test_users_apart.py's.
    rules = Rules(**{"share_with": "anyone", "idle_first": False} | values.pop("rules", {}))
    return Snapshot(1000.0, rules, nodes or (node(),), waiting=jobs, **values)


def answers(snapshot: Snapshot) -> dict[int, Answer]:
    found, _ = steer(snapshot, fresh(policy(snapshot.rules.policy)))
    return {one.job_id: one for one in found}


def places(snapshot: Snapshot) -> list[str]:
    return [one.pin.kind if one.pin else str(one.why) for one in answers(snapshot).values()]


def test_most_free_memory_and_the_queue_before_counts() -> None:
    found = places(world(waiting(1), waiting(2), waiting(3)))
    assert found == ["a100-0", "a100-1", "a100-0"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("first-fit", ["a100-0", "a100-0", "a100-0"]),
        ("best-fit", ["a100-0", "a100-0", "a100-0"]),
        ("round-robin", ["a100-0", "a100-1", "a100-0"]),
        ("lug", ["a100-0", "a100-1", "a100-0"]),
    ],
)
def test_each_policy_as_in_the_simulator(name: str, expected: list[str]) -> None:
    jobs = (waiting(1), waiting(2), waiting(3))
    assert places(world(*jobs, rules={"policy": name})) == expected


def test_telemetry_decides_not_the_plan() -> None:
    """A neighbour holds more than its share: the other GPU has more that is really free."""
    devices = (device(0, used=5, free_mib=12 * GIB), device(1, used=20, free_mib=19 * GIB))
    assert places(world(waiting(1), nodes=(node("n1", *devices),))) == ["a100-1"]


def test_gate() -> None:
    busy = (device(0, used=5, smact=0.9), device(1, used=20, smact=0.5, free_mib=19 * GIB))
    assert places(world(waiting(1), nodes=(node("n1", *busy),))) == ["a100-1"]
    both = (busy[0], replace(busy[1], smact=0.81))
    shut = world(waiting(1), nodes=(node("n1", *both),))
    assert answers(shut)[1] == Answer(1, Act.WAIT, Why.GATE)
    late = replace(shut, waiting=(waiting(1, since_s=600.0),))
    assert answers(late)[1].why is Why.GAVE_UP
    open_ = replace(shut, rules=replace(shut.rules, smact_gate=1.0))
    assert answers(open_)[1].act is Act.PIN


def test_a_young_job_counts_before_telemetry_shows_it() -> None:
    young = Running(7, 1000, "n1", (0,), 10, start_s=990.0, smact=0.9)
    nodes = (node("n1", device(0, used=10), device(1, whole=True)),)
    shut = world(waiting(1), nodes=nodes, running=(young,))
    assert answers(shut)[1].why is Why.GATE
    old = replace(shut, running=(replace(young, start_s=800.0),))
    assert answers(old)[1].act is Act.PIN


def test_stale_telemetry_is_left_to_slurm() -> None:
    old = (device(0, age_s=61.0), device(1, age_s=None))
    snapshot = world(
        waiting(1), waiting(2, pin=Pin("n1", "a100-0"), since_s=990.0), nodes=(node("n1", *old),)
    )
    assert answers(snapshot) == {
        1: Answer(1, Act.NATIVE, Why.STALE),
        2: Answer(2, Act.UNPIN, Why.STALE),
    }


def test_a_pin_that_holds_is_kept() -> None:
    """Although another GPU has more free memory by now."""
    job = waiting(1, pin=Pin("n1", "a100-1"), since_s=990.0)
    nodes = (node("n1", device(0), device(1, used=10, free_mib=29 * GIB)),)
    assert answers(world(job, nodes=nodes))[1].act is Act.KEEP


def test_a_pin_moves_with_the_world() -> None:
    job = waiting(1, pin=Pin("n1", "a100-1"), since_s=990.0)
    taken = world(job, nodes=(node("n1", device(0), device(1, whole=True)),))
    found = answers(taken)[1]
    assert (found.act, found.why, found.pin) == (Act.PIN, Why.MOVED, Pin("n1", "a100-0"))
    full = world(job, nodes=(node("n1", device(0, used=35), device(1, whole=True)),))
    assert answers(full)[1] == Answer(1, Act.UNPIN, Why.NO_ROOM)
    closed = world(job, nodes=(node("n1", open=False),))
    assert answers(closed)[1] == Answer(1, Act.UNPIN, Why.CLOSED)


def test_a_wait_too_long_in_a_pin() -> None:
    job = waiting(1, pin=Pin("n1", "a100-1"), since_s=600.0)
    assert answers(world(job))[1] == Answer(1, Act.UNPIN, Why.GAVE_UP)


def test_not_behind_a_job_that_waits_for_the_gpu() -> None:
    """Both GPUs are shared; the whole-GPU job is to have the one that is free first."""
    nodes = (node("n1", device(0, used=10), device(1, used=10)),)
    running = (
        Running(7, 1000, "n1", (0,), 10, start_s=0.0, ends_s=2000.0, smact=0.1),
        Running(8, 1000, "n1", (1,), 10, start_s=0.0, ends_s=9000.0, smact=0.1),
    )
    later = waiting(2, run_s=7200.0)
    found = answers(world(whole(1), later, nodes=nodes, running=running))
    assert found[2].pin == Pin("n1", "a100-1")
    one = (node("n1", device(0, used=10)),)
    found = answers(world(whole(1), later, nodes=one, running=running[:1]))
    assert found[2] == Answer(2, Act.NATIVE, Why.BEHIND)


def test_what_slurm_would_not_start_is_not_pinned() -> None:
    job = waiting(1, startable=False)
    assert answers(world(job))[1] == Answer(1, Act.NATIVE, Why.NOT_YET)
    pinned = replace(job, pin=Pin("n1", "a100-1"))
    assert answers(world(pinned))[1].act is Act.KEEP


def test_no_more_than_ahead() -> None:
    found = answers(world(waiting(1, 1), waiting(2, 1), waiting(3, 1), rules={"ahead": 2}))
    assert [one.act for one in found.values()] == [Act.PIN, Act.PIN, Act.NATIVE]


def test_nobody_knows_who_is_there() -> None:
    """A process of no job on a GPU that Slurm holds idle."""
    nodes = (node("n1", device(0, free_mib=3 * GIB), device(1)),)
    assert places(world(waiting(1), waiting(2), nodes=nodes)) == ["a100-1", "a100-1"]


def test_nodes_without_types_are_not_steered_to() -> None:
    nodes = (node("n1", steered=False), node("n2"))
    job = waiting(1, nodes=("n1", "n2"))
    assert answers(world(job, nodes=nodes))[1].pin == Pin("n2", "a100-0")


# properties

KINDS = sorted(set(registry()) - {"lookahead", "exclusive"})
devices = st.builds(
    lambda used, whole, age, free, smact: {
        "used": 0 if whole else used,
        "whole": whole,
        "age_s": age,
        "free_mib": free * GIB,
        "smact": smact,
    },
    st.integers(0, 39),
    st.booleans(),
    st.sampled_from([None, 1.0, 59.0, 61.0]),
    st.integers(0, 39),
    st.sampled_from([None, 0.0, 0.5, 0.79, 0.9]),
)
hosts = st.lists(
    st.tuples(st.lists(devices, min_size=1, max_size=4), st.booleans(), st.booleans()),
    min_size=1,
    max_size=3,
)
jobs = st.lists(
    st.tuples(
        st.integers(0, 39),  # shards, 0: whole GPUs
        st.booleans(),  # ours
        st.booleans(),  # startable
        st.integers(0, 12),  # pinned to that GPU, counted over all nodes
        st.sampled_from([None, 100.0, 900.0]),  # since
        st.sampled_from([None, 0.1, 0.9]),
    ),
    max_size=10,
)


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    nodes = tuple(
        Node(
            f"n{number}",
            tuple(device(place, **values) for place, values in enumerate(found)),
            steered=steered,
            open=open_,
            cpus=64,
            memory_mib=10**6,
        )
        for number, (found, steered, open_) in enumerate(draw(hosts))
    )
    every = [Pin(one.name, gpu.kind) for one in nodes for gpu in one.devices]
    queue = []
    for number, (shards, ours, startable, place, since, smact) in enumerate(draw(jobs), start=1):
        ours = ours and shards > 0
        pin = every[place] if ours and place < len(every) else None
        queue.append(
            Waiting(
                number, str(number), 1, 1, shards, tuple(one.name for one in nodes), ours=ours,
                startable=startable, pin=pin, since_s=since if pin else None, run_s=600.0,
                smact=smact,
            )
        )  # fmt: skip
    rules = Rules(policy=draw(st.sampled_from(KINDS)), ahead=draw(st.integers(1, 8)))
    return Snapshot(1000.0, rules, nodes, waiting=tuple(queue))


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_pins_are_sound(snapshot: Snapshot) -> None:
    found = answers(snapshot)
    assert list(found) == [job.job_id for job in snapshot.waiting if job.ours]
    by_pin = {Pin(n.name, gpu.kind): (n, gpu) for n in snapshot.nodes for gpu in n.devices}
    taken: dict[Pin, int] = {}
    for job in snapshot.waiting:
        answer = found.get(job.job_id)
        if answer is None or answer.pin is None:
            continue
        host, gpu = by_pin[answer.pin]
        assert host.open, "nothing is pinned to a closed node"
        assert gpu.age_s is not None
        assert gpu.age_s <= 60.0
        if answer.act is Act.PIN:
            assert host.steered
            assert not gpu.whole
        if job.startable:
            taken[answer.pin] = taken.get(answer.pin, 0) + job.shards
            assert gpu.used + taken[answer.pin] <= gpu.shards, "never more shards than free"
            assert not gpu.used or (gpu.smact or 0.0) <= 0.8
    acted = [one for one in found.values() if one.act in (Act.PIN, Act.WAIT)]
    assert len(acted) <= snapshot.rules.ahead


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_done_once_it_is_done(snapshot: Snapshot) -> None:
    """With its answers carried out a snapshot asks for no more pins, and the same again when it is
    read back."""
    found = answers(snapshot)
    assert found == answers(snapshot)
    done = []
    for job in snapshot.waiting:
        answer = found.get(job.job_id)
        if answer is None or answer.act is Act.WAIT:
            done.append(job if answer is None else replace(job, pin=None))
        else:
            since = job.since_s if answer.why is not Why.GAVE_UP else None
            done.append(
                replace(job, pin=answer.pin, since_s=since, given_up=answer.why is Why.GAVE_UP)
            )
    after = answers(replace(snapshot, waiting=tuple(done)))
    for job_id, answer in after.items():
        assert answer.pin == found[job_id].pin, (found[job_id], answer)


@settings(max_examples=50, deadline=None)
@given(worlds())
def test_order(snapshot: Snapshot) -> None:
    """What comes later in Slurm's order changes nothing for what comes before."""
    found = answers(snapshot)
    first = replace(snapshot, waiting=snapshot.waiting[: len(snapshot.waiting) // 2])
    for job_id, answer in answers(first).items():
        assert found[job_id] == answer


def test_replay_gives_the_same_answers(tmp_path: Any) -> None:
    path = tmp_path / "one.json"

    @settings(max_examples=50, deadline=None)
    @given(worlds())
    def check(snapshot: Snapshot) -> None:
        found, _ = steer(snapshot, fresh(policy(snapshot.rules.policy)))
        path.write_text(recorded(snapshot, found))
        again = replay(path)
        assert again.same
        assert again.snapshot == snapshot

    check()


def test_nobody_joins_where_a_whole_gpu_is_waited_for() -> None:
    """It would keep the other waiting; on an idle GPU it starts as it would without sharing."""
    nodes = (node("n1", device(0, used=10), device(1, used=10)),)
    running = tuple(
        Running(7 + n, 1000, "n1", (n,), 10, start_s=0.0, ends_s=9000.0, smact=0.1) for n in (0, 1)
    )
    short = waiting(2, run_s=60.0, since_s=0.0)
    look = world(whole(1, 2), short, nodes=nodes, running=running, rules={"whole_first": True})
    assert answers(look)[2] == Answer(2, Act.WAIT, Why.WHOLE), "both are kept"
    eager = replace(look, rules=replace(look.rules, whole_first=False, max_pin_s=2000.0))
    assert answers(eager)[2] == Answer(2, Act.NATIVE, Why.BEHIND), "Slurm's backfill decides"
    idle = replace(look, nodes=(node("n1", device(0, used=10), device(1)),), running=running[:1],
                   waiting=(whole(1, 2), replace(short, since_s=None)))  # fmt: skip
    assert answers(idle)[2].pin == Pin("n1", "a100-1")
    # One that can never start here holds up nobody.
    never = replace(look, waiting=(whole(1, 3), replace(short, since_s=None)))
    assert answers(never)[2].act is Act.PIN


def test_another_partitions_first_job_is_none_of_ours() -> None:
    """It waits for its own nodes: neither is it sent to ours, nor do we wait for it."""
    nodes = (node("n1", device(0, whole=True)), node("n2", device(0, used=10)))
    running = (Running(8, 1000, "n2", (0,), 10, start_s=0.0, ends_s=9000.0, smact=0.1),)
    share = waiting(3, nodes=("n2",))
    look = world(whole(1), share, nodes=nodes, running=running, rules={"whole_first": True})
    assert answers(look)[3].pin == Pin("n2", "a100-0")
    both = replace(look, waiting=(whole(1), whole(2, nodes=("n2",)), share))
    assert answers(both)[3].why is Why.WHOLE


def test_as_many_gpus_are_kept_as_are_waited_for() -> None:
    """Those that are free first. On the others sharing goes on, also for whoever has no room yet:
    it waits in a pin there, in Slurm's order, so that Slurm does not put it on a kept one."""
    ends = (9000.0, 5000.0, 7000.0)
    nodes = (node("n1", *(device(n, used=10) for n in range(3))),)
    running = tuple(
        Running(7 + n, 1000, "n1", (n,), 10, start_s=0.0, ends_s=ends[n], smact=0.1)
        for n in range(3)
    )
    rules = {"whole_first": True, "smact_gate": 0.8}
    share = waiting(5, run_s=60.0)
    look = world(whole(1), whole(2), share, nodes=nodes, running=running, rules=rules)
    assert answers(look)[5].pin == Pin("n1", "a100-0"), "a100-1 and a100-2 are kept"
    assert answers(replace(look, waiting=(share, whole(1), whole(2))))[5].why is Why.POLICY
    large = waiting(6, 35, pin=Pin("n1", "a100-2"), since_s=0.0)
    full = replace(look, waiting=(whole(1), whole(2), large))
    assert answers(full)[6] == Answer(
        6, Act.PIN, Why.WHOLE, Pin("n1", "a100-0"), "it waits its turn there; others are reserved"
    )
    there = replace(large, pin=Pin("n1", "a100-0"))
    stays = replace(look, waiting=(whole(1), whole(2), there))
    assert answers(stays)[6] == Answer(6, Act.KEEP, Why.WHOLE, Pin("n1", "a100-0"))
    # A pin to a GPU with room, but above the gate, would start there.
    busy = (device(0, used=10, smact=0.9), *nodes[0].devices[1:])
    gated = replace(look, nodes=(node("n1", *busy),))
    assert answers(gated)[5] == Answer(5, Act.WAIT, Why.WHOLE)
