# SPDX-License-Identifier: Apache-2.0
"""Steering, pure: two users never meet on one GPU where the site does not allow it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.place.steering import (
    Act,
    Node,
    Pin,
    Rules,
    Running,
    Snapshot,
    Waiting,
    Why,
    steer,
)
from slurm_coloc.policies import fresh, policy
from tests.unit.core.test_steering import GIB, answers, device, node
from tests.unit.core.test_steering import waiting as waiting_of

ADA, BEN = 1000, 1001


def waiting(job_id: int, uid: int, shards: int = 10) -> Waiting:
    return replace(waiting_of(job_id, shards), uid=uid, nodes=("n1", "n2"))


def world(*jobs: Waiting, nodes: tuple[Node, ...], policy: str = "magm",
          running: tuple[Running, ...] = ()) -> Snapshot:  # fmt: skip
    return Snapshot(1000.0, Rules(policy=policy), nodes, running, jobs)


POLICIES = ("magm", "first-fit", "best-fit", "round-robin", "lug", "mug", "interference")


def test_ben_gets_the_empty_gpu_beside_ada() -> None:
    """Best fit would have taken the fuller one."""
    there = Running(7, ADA, "n1", (0,), 10, smact=0.1)
    nodes = (node("n1", device(0, used=10, free_mib=29 * GIB), device(1)),)
    look = world(waiting(1, BEN), nodes=nodes, running=(there,), policy="best-fit")
    assert answers(look)[1].pin == Pin("n1", "a100-1")


def test_a_full_house_of_others_takes_no_newcomer() -> None:
    there = tuple(Running(job, ADA, "n1", (job,), 10, smact=0.1) for job in (0, 1))
    nodes = (node("n1", *(device(n, used=10, free_mib=29 * GIB) for n in (0, 1))),)
    found = answers(world(waiting(9, BEN), nodes=nodes, running=there))[9]
    assert found.pin is None


def test_shares_of_nobody_known_count_as_somebody_else() -> None:
    """Slurm says that shards are taken, and no job is known to have them."""
    nodes = (node("n1", device(0, used=10, free_mib=29 * GIB)),)
    assert answers(world(waiting(9, ADA), nodes=nodes))[9].pin is None


HERS = Running(7, ADA, "n1", (0,), 10, smact=0.1)
TWO_NODES = (
    node("n1", device(0, used=10, free_mib=29 * GIB), device(1)),
    node("n2", device(0, used=10, free_mib=29 * GIB), device(1, free_mib=30 * GIB)),
)


def test_under_exclusive_user_a_node_with_others_is_no_place() -> None:
    """The emptiest GPU is on a node that Slurm gives to ada alone; on the other one are ben's."""
    his = Running(8, BEN, "n2", (0,), 10, smact=0.1)
    jobs = [
        replace(waiting(number, uid), exclusive_user=True) for number, uid in ((1, BEN), (2, ADA))
    ]
    found = answers(world(*jobs, nodes=TWO_NODES, running=(HERS, his)))
    assert [one.pin for one in found.values()] == [Pin("n2", "a100-1"), Pin("n1", "a100-1")]


@pytest.mark.parametrize(
    ("pin", "act"), [(None, Act.NATIVE), (Pin("n1", "a100-1"), Act.UNPIN)], ids=["new", "pinned"]
)
def test_where_all_nodes_are_others_slurm_waits_for_the_first(pin: Pin | None, act: Act) -> None:
    theirs = Running(8, 1002, "n2", (0,), 10, smact=0.1)
    job = replace(waiting(1, BEN), exclusive_user=True, pin=pin)
    found = answers(world(job, nodes=TWO_NODES, running=(HERS, theirs)))[1]
    assert (found.act, found.why) == (act, Why.USERS)


def test_who_comes_first_in_the_walk_has_the_node() -> None:
    jobs = [
        replace(waiting(number, uid), exclusive_user=True) for number, uid in ((1, BEN), (2, ADA))
    ]
    found = answers(world(*jobs, nodes=(node("n1"), node("n2"))))
    assert {one.pin.node for one in found.values() if one.pin} == {"n1", "n2"}


@st.composite
def worlds(draw: st.DrawFn) -> Snapshot:
    """Two nodes, three users of two accounts, jobs that run, wait and are pinned already."""
    uids = st.sampled_from((ADA, BEN, 1002))
    used: dict[tuple[str, int], int] = {}
    running = []
    for job in range(draw(st.integers(0, 4))):
        place = draw(st.sampled_from(("n1", "n2"))), draw(st.integers(0, 1))
        if used.get(place, 0) + 8 > 39:
            continue
        uid = draw(uids)
        if any((one.node, one.devices[0]) == place and one.uid != uid for one in running):
            continue
        used[place] = used.get(place, 0) + 8
        running.append(Running(100 + job, uid, place[0], (place[1],), 8, smact=0.2))
    nodes = tuple(
        node(
            name,
            *(
                device(n, used=used.get((name, n), 0), free_mib=(39 - used.get((name, n), 0)) * GIB)
                for n in (0, 1)
            ),
        )
        for name in ("n1", "n2")
    )
    pins = st.none() | st.builds(Pin, st.sampled_from(("n1", "n2")),
                                 st.sampled_from(("a100-0", "a100-1")))  # fmt: skip
    queue = [
        replace(
            waiting(job, draw(uids), draw(st.integers(1, 30))),
            pin=draw(pins),
            startable=draw(st.booleans()),
            given_up=draw(st.booleans()),
            since_s=draw(st.sampled_from((None, 999.0, 100.0))),
        )
        for job in range(1, 1 + draw(st.integers(1, 8)))
    ]
    rules = Rules(
        policy=draw(st.sampled_from(POLICIES)),
        smact_gate=draw(st.sampled_from((0.1, 0.8, 1.0))),
        whole_first=draw(st.booleans()),
    )
    return Snapshot(1000.0, rules, nodes, tuple(running), tuple(queue))


def there(look: Snapshot) -> Iterator[tuple[Pin, int]]:
    """The GPUs of running jobs, and of waiting ones after the answers, with their users."""
    for one in look.running:
        yield Pin(one.node, f"a100-{one.devices[0]}"), one.uid
    found, _ = steer(look, fresh(policy(look.rules.policy)))
    pins = {one.job_id: one.pin for one in found if one.act in (Act.PIN, Act.KEEP)}
    for job in look.waiting:
        if (pin := pins.get(job.job_id)) is not None:
            yield pin, job.uid


@settings(max_examples=300, deadline=None)
@given(worlds())
def test_no_answer_brings_two_users_together(look: Snapshot) -> None:
    users: dict[Pin, set[int]] = {}
    for pin, uid in there(look):
        users.setdefault(pin, set()).add(uid)
    assert all(len(who) == 1 for who in users.values()), users


def test_idle_gpus_first_while_no_job_asks_for_whole_ones() -> None:
    """Which of the two decides: the key, or the queue."""
    there = Running(7, ADA, "n1", (0,), 10, smact=0.1)
    nodes = (node("n1", device(0, used=10, free_mib=29 * GIB), device(1)),)
    look = world(waiting(1, ADA), nodes=nodes, running=(there,), policy="best-fit")
    assert answers(look)[1].pin == Pin("n1", "a100-1")
    mixed = replace(look, waiting=(*look.waiting, replace(waiting(2, BEN, 0), ours=False)))
    assert answers(mixed)[1].pin == Pin("n1", "a100-0")
    always = replace(mixed, rules=replace(mixed.rules, idle_first=True))
    assert answers(always)[1].pin == Pin("n1", "a100-1")
    never = replace(look, rules=replace(look.rules, idle_first=False))
    assert answers(never)[1].pin == Pin("n1", "a100-0")


@pytest.mark.parametrize("name", ["auto", "interference", "best-fit"])
def test_a_held_job_changes_nobody_s_place(name: str) -> None:
    """Else one user's held job for whole GPUs would put all others' shares together."""
    there = Running(7, ADA, "n1", (0,), 10, smact=0.1)
    nodes = (node("n1", device(0, used=10, free_mib=29 * GIB), device(1)),)
    look = world(waiting(1, ADA), nodes=nodes, running=(there,), policy=name)
    held = replace(waiting(2, BEN, 0), ours=False, startable=False)
    assert answers(replace(look, waiting=(*look.waiting, held)))[1].pin == answers(look)[1].pin
    wants = replace(held, startable=True)
    assert answers(replace(look, waiting=(*look.waiting, wants)))[1].pin == Pin("n1", "a100-0")


def test_accounts_share_where_the_site_says_so() -> None:
    there = Running(7, ADA, "n1", (0,), 10, smact=0.1, account="lab")
    nodes = (node("n1", device(0, used=10, free_mib=29 * GIB)),)
    look = world(waiting(1, BEN), nodes=nodes, running=(there,))
    look = replace(look, rules=replace(look.rules, share_with="account"))
    assert answers(look)[1].pin is None, "an account that is not known is nobody else's"
    known = replace(look, waiting=(replace(look.waiting[0], account="lab"),))
    assert answers(known)[1].pin == Pin("n1", "a100-0")


def test_a_job_that_gave_up_tries_all_gpus_in_turn() -> None:
    """Slurm may have reasons of its own against a node where telemetry shows room."""
    nodes = tuple(node(name, device(0), device(1)) for name in ("n1", "n2", "n3"))
    job = replace(waiting(1, ADA), nodes=("n1", "n2", "n3"), given_up=True, since_s=600.0)
    at, tried = Pin("n1", "a100-0"), []
    for _ in range(3):
        found = answers(world(replace(job, pin=at), nodes=nodes))[1]
        assert found.act is Act.PIN and found.pin is not None
        tried.append((at := found.pin).node)
    assert tried == ["n2", "n3", "n1"]
    stays = replace(job, pin=at, since_s=990.0)
    assert answers(world(stays, nodes=nodes))[1].act is Act.KEEP, "it has just been put there"
    alone = world(replace(job, pin=Pin("n1", "a100-0")), nodes=(node("n1", device(0)),))
    assert answers(alone)[1].act is Act.KEEP
