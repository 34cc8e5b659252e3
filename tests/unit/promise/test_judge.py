# SPDX-License-Identifier: Apache-2.0
"""The judge of `make promise` sees each promise that is broken, and none that is kept."""

from dataclasses import replace

import pytest

from tests.promise import judge
from tests.promise.judge import EndedRun, Job
from tests.promise.plan import Kind, plan
from tests.promise.witness import SHARDS, Process, Promise, Second

ADA, BEN = 1001, 1002


def job(number: int, kind: Kind = Kind.HONEST, **more: object) -> Job:
    fields = {"state": "COMPLETED", "stays": [(0.0, 50.0)], "done": 1, "truth_mib": 4000} | more
    return Job(number, "ada", kind, coloc=True, **fields)  # type: ignore[arg-type]


def seconds(*processes: Process, promised: dict[int, int], count: int = 6) -> list[Second]:
    found = {number: Promise(number, 0, mib) for number, mib in promised.items()}
    return [Second(float(at), processes, found) for at in range(count)]


HONEST = seconds(
    Process("n1/0", 10, ADA, 1, 5000, True),
    Process("n1/0", 11, ADA, 2, 7000, True),
    Process("n1/1", 12, BEN, 3, 30_000, False),
    promised={1: 5120, 2: 7168, 3: 0},
)
JOBS = {1: job(1), 2: job(2), 3: job(3, Kind.WHOLE)}


def broken(seen: list[Second], jobs: dict[int, Job]) -> list[str]:
    """The first words of the promises that are broken."""
    return [line.promise.split(":")[0] for line in judge.judge(seen, jobs) if line.broken]


def test_honest_jobs_break_nothing() -> None:
    assert broken(HONEST, JOBS) == []
    held = {line.promise.split(":")[0]: line.seen for line in judge.judge(HONEST, JOBS)}
    assert (held["memory"], held["users"], held["whole GPUs"], held["lost"]) == (18, 12, 6, 3)


def test_a_promise_that_was_never_looked_at_does_not_hold() -> None:
    assert [line.holds for line in judge.judge([], {})] == [False] * 8


def test_a_job_above_its_share_for_three_looks() -> None:
    over = Process("n1/0", 10, ADA, 1, 7100, True)
    short = seconds(over, promised={1: 5120}, count=2)
    assert broken(short, {1: job(1)}) == []
    long = seconds(over, promised={1: 5120}, count=3)
    assert broken(long, {1: job(1)}) == ["memory", "overrun"]
    told = job(1, Kind.UNFENCED, events=[(2.5, "overrun")])
    assert broken(long, {1: told}) == []
    assert broken(long, {1: job(1, Kind.UNFENCED, events=[(60.0, "overrun")])}) == ["overrun"]


def test_contexts_of_several_processes_are_no_overrun() -> None:
    two = [Process("n1/0", pid, ADA, 1, 4400, True) for pid in (10, 11)]
    assert broken(seconds(*two, promised={1: 5120}), {1: job(1)}) == []


@pytest.mark.parametrize(
    ("other", "word"), [((BEN, 4096), "users"), ((ADA, 0), "whole GPUs")], ids=["users", "whole"]
)
def test_who_meets_on_a_gpu(other: tuple[int, int], word: str) -> None:
    uid, mib = other
    seen = seconds(
        Process("n1/0", 10, ADA, 1, 4000, True),
        Process("n1/0", 11, uid, 2, 4000, True),
        promised={1: 5120, 2: mib},
    )
    assert broken(seen, {1: job(1), 2: job(2)}) == [word]


def test_blame() -> None:
    run = EndedRun(0, 0.0, 4.0, "oom-gpu", "self", None, 5120, "mps")
    small = job(1, runs=[run], truth_mib=4000)
    beside = [Process("n1/0", 10, ADA, 1, 3000, True), Process("n1/0", 11, ADA, 2, 9000, True)]
    seen = seconds(*beside, promised={1: 5120, 2: 5120})
    jobs = {1: small, 2: job(2, Kind.UNFENCED, events=[(2.0, "overrun")])}
    assert broken(seen, jobs) == ["blame"]
    right = replace(run, blame="neighbour", culprit=2)
    assert broken(seen, jobs | {1: job(1, runs=[right], truth_mib=4000)}) == []
    wrong = replace(run, blame="neighbour", culprit=7)
    assert broken(seen, jobs | {1: job(1, runs=[wrong], truth_mib=4000)}) == ["blame"]
    lying = job(1, Kind.LYING, runs=[run], truth_mib=9000)
    assert broken(seen, jobs | {1: lying}) == []


def test_lost_twice_and_off() -> None:
    assert broken(HONEST, JOBS | {4: job(4, state="PENDING")}) == ["lost"]
    assert broken(HONEST, JOBS | {4: job(4, Kind.CANCELLED, state="CANCELLED")}) == []
    assert broken(HONEST, JOBS | {4: job(4, stays=[(0, 5), (4, 9)])}) == ["twice"]
    assert broken(HONEST, JOBS | {4: job(4, done=2)}) == ["twice"]
    runs = [(10.0, 20.0), (30.0, 40.0)]
    for put_back_s, wrong in ((25.0, []), (15.0, ["twice"])):
        one = job(4, done=2, stays=runs, put_back_s=put_back_s)
        assert broken(HONEST, JOBS | {4: one}) == wrong
    thrice = job(4, done=3, stays=[*runs, (50.0, 60.0)], put_back_s=25.0)
    assert broken(HONEST, JOBS | {4: thrice}) == ["twice"]
    shared = EndedRun(0, 0.0, 4.0, "completed", "", None, 5120, "mps")
    assert broken(HONEST, JOBS | {4: job(4, while_off=True, runs=[shared])}) == ["off"]


@pytest.mark.parametrize(
    ("text", "count"),
    [("gres/shard:a100-2:12", 12), ("gres:shard:5", 5), ("gres/shard=6", 6), ("gres/gpu:1", None)],
)
def test_what_slurm_shows_of_a_share(text: str, count: int | None) -> None:
    found = SHARDS.search(text)
    assert (int(found[1]) if found else None) == count


def test_the_plan_follows_from_its_seed() -> None:
    assert plan(300, 5, 1) == plan(300, 5, 1) != plan(300, 5, 2)
    drawn = plan(300, 5, 1)
    assert {one.kind for one in drawn} == set(Kind)
    assert {one.user for one in drawn} == set(range(5))
