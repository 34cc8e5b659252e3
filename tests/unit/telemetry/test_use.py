# SPDX-License-Identifier: Apache-2.0
"""What a run used, added up from samples: peaks, shares, means, and a record that goes on."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.gpu.peak import Use
from slurm_coloc.core.gpu.telemetry.final_usage import closed, peak_mib
from slurm_coloc.core.gpu.telemetry.pids import MOST
from slurm_coloc.core.gpu.telemetry.reading import Held, Profile, Reading
from slurm_coloc.core.gpu.telemetry.use import RunUse, resume
from slurm_coloc.flow.nodes import usage

GPU = "GPU-0123"
T = 1_000_000.0


def reading(*held: Held, smact: float | None = 0.5, uuid: str = GPU, mig: bool = False) -> Reading:
    taken = sum(one.mib for one in held)
    return Reading(
        uuid, "A100", 40960, max(0, 40536 - taken), held, Profile(smact, 0.2, 0.3), mig=mig
    )


def held(job: int | None, mib: int, pid: int = 10, busy: float | None = None) -> Held:
    return Held(pid, T, mib, job, busy)


def watched(*samples: Reading, job: int = 7) -> RunUse:
    run = RunUse(job, 0, T)
    for number, one in enumerate(samples, start=1):
        run.add(T + number, [one], {GPU: 100.0}, {8: (1, 1001)})
    return run


def test_alone_on_a_gpu() -> None:
    run = watched(reading(), reading(held(7, 3000)), reading(held(7, 5000), smact=0.7))
    [gpu] = run.record()["gpus"]
    assert (gpu["peak_mib"], gpu["smact_how"], gpu["smact_max"]) == (5000, "alone", 0.7)
    assert gpu["smact_mean"] == pytest.approx((0.5 + 0.5 + 0.7) / 3, abs=1e-4)
    assert gpu["energy_j"] == gpu["gpu_energy_j"] == 300.0
    assert gpu["neighbours_max"] == 0 and run.record()["complete"]


def test_beside_others_the_activity_is_split() -> None:
    """By the time in which each had a kernel, else by equal parts; energy goes with it."""
    told = reading(held(7, 3000, busy=0.6), held(8, 2000, 11, busy=0.2))
    blind = reading(held(7, 3000), held(8, 2000, 11))
    assert told.weights == pytest.approx({7: 0.75, 8: 0.25})
    assert blind.weights == {7: 0.5, 8: 0.5}
    run = watched(told, blind)
    [gpu] = run.record()["gpus"]
    assert gpu["smact_how"] == "split" and gpu["smact_max"] == pytest.approx(0.375)
    assert gpu["energy_j"] == 125.0 and gpu["gpu_energy_j"] == 200.0
    assert gpu["smocc_mean"] is None, "it has no counter of its own"
    [other] = run.record()["neighbours"]
    assert other == {"job_id": 8, "restart": 1, "uid": 1001, "overlap_s": 2.0}
    assert run.last is not None and run.last["neighbours"] == [
        {"job_id": 8, "held_mib": 2000, "processes": 1}
    ]


def test_a_process_of_no_job_has_its_part_too() -> None:
    run = watched(reading(held(7, 3000), held(None, 500, 12)))
    [gpu] = run.record()["gpus"]
    assert (gpu["smact_how"], gpu["smact_mean"]) == ("split", 0.25)
    assert run.last is not None and run.last["foreign_mib"] == 500


def test_the_last_sample_is_of_the_gpu_that_has_the_least_left() -> None:
    """A promise is of one GPU: what a run holds on several does not add up against it."""
    run = RunUse(7, 0, T)
    full = reading(held(7, 4000), held(8, 36000, 11), held(None, 300, 12), uuid="GPU-b")
    run.add(T + 1, [reading(held(7, 4000, 13)), full], {}, {})
    assert run.last == {
        "at_s": T + 1,
        "held_mib": 4000,
        "gpu_free_mib": 236,
        "neighbours": [{"job_id": 8, "held_mib": 36000, "processes": 1}],
        "foreign_mib": 300,
    }
    assert run.record()["series"]["memory_mib"] == [4000]


def test_the_series_of_a_job_of_several_gpus_is_of_one() -> None:
    """Memory is compared with one GPU's, and an activity above 1 would void the whole record."""
    run = RunUse(7, 0, T)
    both = [reading(held(7, 16000), smact=0.9), reading(held(7, 15000), smact=0.6, uuid="GPU-b")]
    assert run.add(T + 1, both, {}, {}) == 1.5
    found, why = usage.read(json.loads(json.dumps(run.record())), 7, 0)
    assert found and not why, why
    assert (found.series.memory_mib, found.series.smact) == ((16000,), (0.75,))


def test_activity_is_not_known_where_that_of_one_gpu_is_not() -> None:
    run = RunUse(7, 0, T)
    both = [reading(held(7, 10), smact=None), reading(held(7, 10), smact=0.0, uuid="GPU-b")]
    assert run.add(T + 1, both, {}, {}) is None, "it may work on the first"


def test_of_many_neighbours_the_largest_are_kept() -> None:
    small = [held(job, 10, 100 + job) for job in range(100, 140)]
    run = watched(reading(held(7, 3000), *small, held(900, 20000, 11)))
    assert run.last is not None and len(run.last["neighbours"]) == 32
    assert run.last["neighbours"][-1] == {"job_id": 900, "held_mib": 20000, "processes": 1}


def test_before_it_holds_memory_the_last_sample_is_the_newest() -> None:
    beside = held(8, 36000, 11)
    run = watched(reading(), reading(beside))
    assert run.last is not None and run.last["held_mib"] == 0
    assert run.last["neighbours"][0]["held_mib"] == 36000
    run.add(T + 3, [reading(held(7, 3000), beside)], {}, {})
    run.add(T + 4, [reading()], {}, {})
    assert run.last["held_mib"] == 3000, "then it is the last in which it held some"


def test_a_mig_device_is_measured_there() -> None:
    assert watched(reading(held(7, 3000), mig=True)).record()["gpus"][0]["smact_how"] == "mig"


def test_what_is_not_told_is_null() -> None:
    run = watched(reading(held(7, 3000), smact=None))
    assert run.record()["gpus"][0]["smact_mean"] is None
    assert run.record()["series"]["smact"] == [None]


def test_processes_that_ran_together_add_up() -> None:
    """With the driver's own peak of each, which no sample needs to have met."""
    run = watched(*[reading(held(7, 1000, 10), held(7, 1000, 11))] * 3)
    assert run.peak_on(GPU) == 2000
    assert run.pids.account(GPU, Use(10, T + 0.5, None, 1500))
    assert run.peak_on(GPU) == 2500
    # the same number, given to another process later
    assert not run.pids.account(GPU, Use(10, T + 60, None, 9000))
    assert not run.pids.account(GPU, Use(10, T - 60, T - 50, 9000))


def test_one_after_the_other_does_not() -> None:
    run = watched(reading(held(7, 4000, 10)))
    run.pids.close(T + 10)
    run.add(T + 10, [reading(held(7, 3000, 11))], {}, {})
    assert run.peak_on(GPU) == 4000


def test_one_right_after_the_other_does_not_either() -> None:
    """Not in the last sample is gone, though it is not written off yet."""
    run = watched(reading(held(7, 4000, 10)), reading(held(7, 3000, 11)))
    assert run.peak_on(GPU) == 4000


def test_a_gap_makes_it_incomplete_where_nothing_is_accounted() -> None:
    run = watched(reading(held(7, 3000)))
    run.add(T + 60, [reading(held(7, 3000))], {}, {})
    assert not run.complete and run.record()["gap_s"] == 59.0
    run.accounting = True
    assert run.complete
    run.pids.miss(GPU, Use(99, T + 5, T + 6, 700))
    assert not run.complete


def long_run(last_s: float) -> RunUse:
    """A run with one process, in a sample each second up to ``last_s``, with accounting."""
    run = RunUse(7, 0, T)
    for second in range(int(last_s) + 1):
        run.add(T + second, [reading(held(7, 3000, 10))], {}, {})
    run.accounting = True
    return run


def test_a_neighbour_that_no_sample_met_spoils_no_long_run() -> None:
    """It came and went while this run's own process was in every sample, beside other jobs."""
    run = long_run(120)
    for second in (20, 47, 80):
        run.pids.miss(GPU, Use(90 + second, T + second + 0.2, T + second + 0.9, 2500))
    record = run.record()
    assert record["complete"] and peak_mib(record) == 3000
    assert record["unseen"]["could_mib"] == {GPU: 5500}, "the most that it may have held"
    assert resume(json.loads(json.dumps(record))).complete


def test_a_short_run_is_spoilt_and_so_is_one_that_had_no_process_itself() -> None:
    short = long_run(20)
    short.pids.miss(GPU, Use(90, T + 10.2, T + 10.9, 2500))
    assert not short.complete
    between = long_run(60)
    between.pids.close(T + 70)
    between.add(T + 80, [reading(held(7, 3000, 11))], {}, {})
    between.pids.miss(GPU, Use(90, T + 72.2, T + 72.9, 3500))
    assert not between.complete, "its own first process may have been that"
    lasting = long_run(120)
    lasting.pids.miss(GPU, Use(90, T + 10, T + 30, 2500))
    assert not lasting.complete, "samples should have met it"


def test_what_cannot_have_raised_the_peak_spoils_nothing() -> None:
    run = watched(reading(held(7, 3000, 10)), reading(held(7, 3000, 10)))
    run.pids.close(T + 10)
    run.add(T + 10, [reading(held(7, 500, 11))], {}, {})
    run.accounting = True
    run.pids.miss(GPU, Use(90, T + 5.2, T + 5.9, 2500))
    assert run.complete and run.peak_on(GPU) == 3000
    # Two at a time may have.
    run.pids.miss(GPU, Use(91, T + 5.3, T + 5.8, 1500))
    assert not run.complete


def test_what_an_earlier_agent_missed_stays_missed() -> None:
    plain = long_run(120).record() | {"unseen": {"count": 1, "peak_mib": 2500}}
    assert not resume(plain).complete


FIGURE = st.one_of(st.none(), st.floats(0, 1))
SAMPLE = st.lists(
    st.tuples(st.sampled_from([7, 8, 9, None]), st.integers(0, 40000), st.integers(1, 90), FIGURE),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(SAMPLE, FIGURE, st.integers(1, 1600)), min_size=1, max_size=60))
def test_a_record_goes_on_as_if_nothing_had_been(samples: list[Any]) -> None:
    """Stopped and begun again at any sample the peaks are the same; colocd takes every record; and
    it stays small."""
    through, broken = RunUse(7, 0, T), RunUse(7, 0, T)
    at_s = T
    for each, smact, pause_s in samples:
        at_s += pause_s / 4  # exact as the milliseconds of a record
        # a pid is one process' of one job
        found = {pid: (job, mib, busy) for job, mib, pid, busy in each}
        there = [held(job, mib, pid, busy) for pid, (job, mib, busy) in found.items()]
        one = reading(*there, smact=smact)
        for run in (through, broken):
            run.add(at_s, [one], {GPU: 5.0}, {8: (0, 1)})
            run.pids.close(at_s)
        plain = json.loads(json.dumps(broken.record()))
        broken = resume(plain)
        checked, wrong = usage.read(plain, 7, 0)
        assert checked is not None, wrong
    ours, theirs = through.record(), broken.record()
    assert ours["gpus"][0]["peak_mib"] == theirs["gpus"][0]["peak_mib"]
    assert ours["samples"] == theirs["samples"] == len(samples)
    assert len(ours["pids"]) <= MOST and len(json.dumps(ours)) < 28000
    assert [p["pid"] for p in ours["pids"]] == [p["pid"] for p in theirs["pids"]]
    assert ours["series"]["memory_mib"] == theirs["series"]["memory_mib"]
    sums = ours["gpus"][0]["energy_j"] or 0
    assert sums <= (ours["gpus"][0]["gpu_energy_j"] or 0) + 1e-6


@settings(max_examples=200, deadline=None)
@given(SAMPLE)
def test_the_parts_never_exceed_the_whole(each: list[Any]) -> None:
    one = reading(*[held(job, mib, pid, busy) for job, mib, pid, busy in each])
    assert 0 <= sum(one.weights.values()) <= 1 + 1e-9


def test_closing_takes_what_came_after_the_last_sample() -> None:
    record = watched(reading(held(7, 3000))).record()
    late = Use(20, T + 1.5, T + 2, 4000)
    mine = closed(record, {GPU: [Use(10, T, T + 3, 3100), late]}, lambda *_: 7, T + 3)
    assert mine["complete"] and peak_mib(mine) == 7100, "they were there together"
    theirs = closed(record, {GPU: [late]}, lambda *_: 0, T + 3)
    assert theirs["complete"] and peak_mib(theirs) == 3000
    nobodys = closed(record, {GPU: [late]}, lambda *_: None, T + 3)
    assert not nobodys["complete"] and peak_mib(nobodys) is None
    assert peak_mib(closed(record, None, lambda *_: None, T + 3)) == 3000
    assert peak_mib(closed(record, None, lambda *_: None, T + 300)) is None, "nobody looked"


@pytest.mark.parametrize("broken", [{}, {"v": 2}, {"v": 1, "gpus": 3}, {"v": 1, "job_id": "x"}])
def test_what_is_no_record_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        resume(broken)


def test_the_last_events_are_kept_for_they_tell_how_it_ended() -> None:
    run = RunUse(7, 0, T)
    run.note(T, "overrun", "begun")
    for number in range(40):
        run.note(T + number, "driver", f"no sample for {number} s")
    run.note_again(T + 50, "gpu-lost", "Xid 79")
    kinds = [one["kind"] for one in run.record()["events"]]
    assert len(kinds) == 20 and kinds[0] == "overrun" and kinds[-1] == "gpu-lost"
    assert run.record()["left_out"] == {"events": 22}


def test_of_a_kind_with_a_bound_the_last_ones_are_kept() -> None:
    run = RunUse(7, 0, T)
    run.note(T, "gpu-lost", "Xid 79")
    for number in range(12):
        run.note(T + number, "overrun", f"overrun {number}", 8)
    texts = [one["text"] for one in run.record()["events"]]
    assert texts == ["Xid 79", *(f"overrun {number}" for number in range(4, 12))]
