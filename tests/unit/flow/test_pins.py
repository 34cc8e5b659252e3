# SPDX-License-Identifier: Apache-2.0
"""Stage place: what is written to Slurm for an answer, and that Slurm's own picture is all that it
remembers.

On real daemons: tests/cluster/test_steered.py. A slurmctld that refuses on demand is a stand-in.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.adapters.ring import Ring
from slurm_coloc.adapters.slurm.commands.columns import SEPARATOR
from slurm_coloc.adapters.slurm.commands.queue import QUEUE, parse_queue
from slurm_coloc.adapters.store import Store
from slurm_coloc.admin.replay import replay
from slurm_coloc.core.decide.rewrite import Rewrite
from slurm_coloc.core.place.queue_order import QueueOrder
from slurm_coloc.core.place.queued_jobs import Queued
from slurm_coloc.core.slurm.binding import Gpu
from slurm_coloc.core.slurm.qos_limits import GPU, LimitOwner, SiteLimits
from slurm_coloc.errors import ConfigError
from slurm_coloc.flow.place.memory import MOST_S, REST, Memory
from tests.unit.flow.placers import (
    CHANGE,
    ID,
    JOB,
    PINNED,
    REQUEST,
    SHAPE,
    USE,
    Slurm,
    placement,
    placer,
    run,
    submitted,
)


def test_a_pin_is_a_type_and_a_node(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(JOB)
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [
        ("7", {"TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1"}),
    ]
    assert "n1 GPU a100-0 by auto" in store.events(ID, 7)[-1].text
    (path,) = Ring(tmp_path / "placement").paths()
    assert replay(path).same


def test_other_gres_stay(store: Store, tmp_path: Path) -> None:
    slurm = Slurm(replace(JOB, tres_per_node="gres/shard:12,gres/tmp:5"))
    run(placer(store, slurm, tmp_path))
    assert slurm.updates[0][1]["TresPerNode"] == "gres/shard:a100-0:12,gres/tmp:5"


def test_shares_per_task_are_pinned_there(store: Store, tmp_path: Path) -> None:
    """As they are asked for under MULTIPLE_SHARING_GRES_PJ; and left to Slurm again."""
    slurm = Slurm(replace(JOB, tres_per_node="", tres_per_task="cpu=2,gres/shard:12"))
    run(placer(store, slurm, tmp_path))
    (pin,) = [fields for _, fields in slurm.updates]
    bind = "gres/shard:per_task:12"
    assert pin == {
        "TresPerTask": "gres/shard:a100-0:12", "TresBind": bind, "ReqNodeList": "n1"
    }  # fmt: skip
    pinned = replace(PINNED, tres_per_node="", tres_per_task="gres/shard:a100-1:12")
    slurm = Slurm(pinned)
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    run(placer(store, slurm, tmp_path, mode="native"))
    (free,) = [fields for _, fields in slurm.updates]
    assert free == {"TresPerTask": "gres/shard:12", "TresBind": bind, "ReqNodeList": ""}


def test_a_submission_per_task_is_pinned_there(store: Store, tmp_path: Path) -> None:
    fields = {"tres_per_node": "", "tres_per_task": "gres/shard:12,cpu=2", "tres_bind": "x"}
    one = placer(store, Slurm(), tmp_path)
    (found,) = submitted(one, REQUEST, change=Rewrite({**fields}))
    assert found == fields | {
        "tres_per_task": "gres/shard:a100-0:12,cpu=2", "req_nodes": "n1"
    }  # fmt: skip


def test_a_restart_goes_on_from_what_slurm_shows(store: Store, tmp_path: Path) -> None:
    """A new colocd changes nothing of a pin that holds, and lets go of one that does not."""
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(PINNED)
    run(placer(store, slurm, tmp_path), 2)
    assert slurm.updates == []
    slurm.uses = [replace(use, usable=False) for use in slurm.uses]
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:12", "ReqNodeList": ""})]
    assert "its node is closed" in store.events(ID, 7)[-1].text


def test_after_a_restart_the_agents_are_awaited(store: Store, tmp_path: Path) -> None:
    """For want of figures nobody is let go: they are on their way."""
    slurm = Slurm(PINNED)
    one = placer(store, slurm, tmp_path, stale_s=5.0)
    live = one._sources.live
    kept, live._beats = live._beats, {}
    run(one)
    assert slurm.updates == []
    (found,) = submitted(one, REQUEST)
    assert found == CHANGE.fields
    live._beats = kept
    run(one)
    assert slurm.updates == []
    live._beats, live._began_s = {}, live._began_s - 5.0
    run(one)
    assert "too old" in store.events(ID, 7)[-1].text


def test_native_lets_go_of_all_pins(store: Store, tmp_path: Path) -> None:
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(PINNED)
    run(placer(store, slurm, tmp_path, mode="native"))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:12", "ReqNodeList": ""})]


@pytest.mark.parametrize(
    "change",
    [
        {"state": "RUNNING", "nodes": "n1"},
        {"admin_comment": ""},
        {"reason": "QOSMaxGRESPerUser"},
        {"reason": "Dependency"},
        {"reason": "BeginTime"},
        {"priority": 0, "reason": "JobHeldUser"},
        {"reservation": "course"},
        {"features": "[rack1*2]"},
        {"num_nodes": 2},
        {"tres_per_node": "gres/gpu:1"},
        {"tres_per_node": "", "tres_per_task": "gres/shard:12", "num_tasks": 2},
        {"tres_per_task": "gres/shard:12"},
        {"partition": "other"},
        {"exc_nodes": "n[1-2]"},
    ],
)
def test_what_is_left_alone(store: Store, tmp_path: Path, change: dict[str, Any]) -> None:
    slurm = Slurm(replace(JOB, **change))
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == []


def test_a_refused_update_is_no_fault(store: Store, tmp_path: Path) -> None:
    """It had started when the update came."""
    slurm = Slurm(JOB, refuse="Job is no longer pending execution")
    run(placer(store, slurm, tmp_path))
    assert [line.kind for line in store.events(ID, 7)] == ["adopted"]


def test_a_recovered_job_is_bound_to_no_node(store: Store, tmp_path: Path) -> None:
    whole = replace(PINNED, tres_per_node="gres/gpu:1", restarts=1, reason="BeginTime")
    share = replace(PINNED, job_id=8, handle="8")
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(whole, share)
    one = placer(store, slurm, tmp_path)
    run(one)
    assert slurm.updates == [("7", {"ReqNodeList": ""})]


def test_a_recovered_share_too(store: Store, tmp_path: Path) -> None:
    """Larger than before, and no GPU has room for it now."""
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(replace(JOB, tres_per_node="gres/shard:30", req_nodes="n1"))
    slurm.uses = [replace(use, gpus=(Gpu(20, 39), Gpu(20, 39))) for use in slurm.uses]
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"ReqNodeList": ""})]


def test_a_node_that_the_owner_named_later_stays(store: Store, tmp_path: Path) -> None:
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(replace(JOB, req_nodes="n2"))
    run(placer(store, slurm, tmp_path))
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:a100-0:12"})]


def test_the_gate_is_a_start_time_and_ends(store: Store, tmp_path: Path) -> None:
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    slurm = Slurm(replace(PINNED))
    slurm.uses = [
        replace(use, gpus=(Gpu(5, 39), Gpu(5, 39))) for use in slurm.uses
    ]  # somebody is there: the gate counts
    one = placer(store, slurm, tmp_path, smact_gate=0.05, max_pin_s=300.0)
    run(one)
    (update,) = slurm.updates
    assert update[1] == {
        "TresPerNode": "gres/shard:12", "ReqNodeList": "", "StartTime": "now+16",
    }  # fmt: skip
    slurm.jobs = [replace(JOB, reason="BeginTime", start_s=time.time() + 15)]
    run(one)
    assert len(slurm.updates) == 1, "renewed only before it is over"
    slurm.uses = [USE, replace(USE, name="n2")]
    run(one)
    assert slurm.updates[-1][1] == {
        "TresPerNode": "gres/shard:a100-0:12", "ReqNodeList": "n1", "StartTime": "now",
    }  # fmt: skip


def test_a_job_that_is_kept_off_stays_pinned(store: Store, tmp_path: Path) -> None:
    """As long as the one before it waits for a whole GPU: max_pin_s does not count."""
    first = replace(JOB, job_id=6, priority=2000, tres_per_node="gres/gpu:1", admin_comment="")
    slurm = Slurm(first, JOB)
    slurm.uses = [replace(USE, gpus=(Gpu(30, 39), Gpu(30, 39)))]
    one = placer(store, slurm, tmp_path, whole_first=True, max_pin_s=1)
    run(one)
    there = {"TresPerNode": "gres/shard:a100-1:12", "ReqNodeList": "n1"}
    assert slurm.updates == [("7", there)], "the other one is kept"
    slurm.jobs = [first, PINNED]
    run(one)
    time.sleep(1.1)
    run(one)
    assert slurm.updates == [("7", there)]
    slurm.jobs = [PINNED]
    run(one)
    assert slurm.updates[1:] == [("7", {"TresPerNode": "gres/shard:12", "ReqNodeList": ""})]


def test_at_submission(store: Store, tmp_path: Path) -> None:
    """The second knows of the first, which Slurm does not show yet."""
    first, second = submitted(placer(store, Slurm(), tmp_path), REQUEST, REQUEST)
    assert (first["tres_per_node"], first["req_nodes"]) == ("gres/shard:a100-0:12", "n1")
    assert (second["tres_per_node"], second["req_nodes"]) == ("gres/shard:a100-1:12", "n1")
    assert first["tres_per_job"] == ""


def test_a_submission_counts_until_slurm_shows_it(store: Store, tmp_path: Path) -> None:
    """And once, not twice."""
    slurm = Slurm()
    one = placer(store, slurm, tmp_path)
    (first,) = submitted(one, REQUEST)
    assert first["tres_per_node"] == "gres/shard:a100-0:12"
    (second,) = submitted(one, REQUEST)  # after a look that does not show the first
    assert second["tres_per_node"] == "gres/shard:a100-1:12"
    slurm.jobs = [
        replace(JOB, job_id=number, handle=str(number), req_nodes="n1", tres_per_node=tres)
        for number, tres in ((7, first["tres_per_node"]), (8, second["tres_per_node"]))
    ]
    (third,) = submitted(one, REQUEST)
    assert (third["tres_per_node"], third["req_nodes"]) == ("gres/shard:a100-0:12", "n2")
    assert slurm.updates == []


def test_at_submission_an_owner_s_node_stays(store: Store, tmp_path: Path) -> None:
    (found,) = submitted(placer(store, Slurm(), tmp_path), replace(REQUEST, req_nodes="n2"))
    assert found == {**CHANGE.fields, "tres_per_node": "gres/shard:a100-0:12"}


@pytest.mark.parametrize(
    "change", [{"array": "0-9"}, {"reservation": "x"}, {"features": "[a*2]"}, {"partition": "cpu"}]
)
def test_at_submission_what_is_left_alone(
    store: Store, tmp_path: Path, change: dict[str, Any]
) -> None:
    (found,) = submitted(placer(store, Slurm(), tmp_path), replace(REQUEST, **change))
    assert found == CHANGE.fields


def test_a_site_that_cannot_be_steered(store: Store, tmp_path: Path) -> None:
    store.note(ID, 7, "place", "n1 GPU a100-1 by magm: idle")
    qos = LimitOwner(qos="gold", limits={"MaxTRESPerUser": {f"{GPU}:a100": 2}})
    slurm = Slurm(PINNED)
    one = placer(store, slurm, tmp_path, SiteLimits({"gold": qos}))
    (found,) = submitted(one, REQUEST)
    assert found == CHANGE.fields
    assert slurm.updates == [("7", {"TresPerNode": "gres/shard:12", "ReqNodeList": ""})]


def test_an_unknown_policy(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one of .*magm"):
        placer(store, Slurm(), tmp_path, policy="magic")


def test_the_ring_keeps_the_newest(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring", kept=3)
    for number in range(5):
        ring.add(str(number))
    assert [path.read_text() for path in ring.paths()] == ["2", "3", "4"]


def test_the_queue_is_read() -> None:
    def line(**values: str) -> str:
        given = {name: values.get(name.replace("-", "_"), "") for name in QUEUE.widths}
        return "".join(
            f"{given[name]:<{width}}" if width else f"{given[name]}{SEPARATOR}"
            for name, width in QUEUE.widths.items()
        )

    text = "\n".join(
        [
            line(JobID="5", State="RUNNING", PriorityLong="9", NodeList="n1"),
            line(JobID="7", State="PENDING", PriorityLong="100", TimeLimit="1-01:00:00",
                 MinMemory="2G", NumCPUs="2", Reason="Priority"),
            line(JobID="9", State="PENDING", PriorityLong="200", ArrayJobID="6",
                 ArrayTaskID="3-5%2", TimeLimit="UNLIMITED", MinMemory="10Mc"),
            line(JobID="6", State="PENDING", PriorityLong="100", Reason="None"),
        ]
    )  # fmt: skip
    read = parse_queue(text)
    found = QueueOrder().sort(job for job in read if job.waits)
    assert len(read) == 4 and [job.job_id for job in found] == [9, 6, 7]
    assert (found[0].handle, found[0].array, found[0].limit_s) == ("6_3", True, None)
    assert (found[0].memory_mib, found[0].memory_per_cpu) == (10, True)
    assert (found[2].limit_s, found[2].memory_mib, found[2].cpus) == (90000.0, 2048, 2)


def test_records_of_one_moment_are_all_kept(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "ring")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ring.add, map(str, range(40))))
    assert sorted(int(path.read_text()) for path in ring.paths()) == list(range(40))


@pytest.mark.parametrize("least_s", [1.0, 5.0])
@pytest.mark.parametrize("took_s", [[0.1, 20.0, 0.1, 4.0, 0.1, 0.1], [12.0] * 9 + [0.1] * 12])
def test_a_start_time_of_ours_holds_until_the_next_round(
    took_s: list[float], least_s: float
) -> None:
    """However long rounds become and cease to be: what a round, or a submission behind it, kept
    from starting still waits at the next round, four seconds late on a busy machine, and is known
    there for ours."""
    memory = Memory(least_s)
    for took in took_s:
        in_the_round_s = memory.ahead_s
        memory.paced(least_s, took)
        assert least_s <= memory.interval_s <= MOST_S
        at_submission_s = memory.ahead_s
        next_round_s = memory.interval_s + max(4.0, memory.interval_s / REST)
        for ahead_s in (in_the_round_s, at_submission_s):
            assert ahead_s >= next_round_s
        assert in_the_round_s - memory.interval_s <= memory.ahead_s + 2
    assert memory.interval_s <= 2 * least_s


class SlowSlurm(Slurm):
    """slurmctld with a long queue."""

    async def queue(self) -> list[Queued]:
        await asyncio.sleep(0.4)
        return await super().queue()


def test_a_long_round_makes_the_next_one_later(store: Store, tmp_path: Path) -> None:
    """Polls of a queue of thousands must not take slurmctld's time, and who waits at the gate waits
    for the next round however late that is."""
    quick = placement(store, Slurm(JOB), tmp_path, interval_s=30.0)
    run(quick)
    assert quick.interval_s == 30.0
    slow = placement(store, SlowSlurm(JOB), tmp_path, interval_s=1.0)
    assert slow.interval_s == 1.0
    run(slow)
    assert 5 * 0.4 <= slow.interval_s <= MOST_S
    begin_time = slow._placer.gate_wait.until_a_round(SHAPE)["begin_time"]
    assert int(begin_time) >= time.time() + slow._placer._memory.ahead_s - 1
