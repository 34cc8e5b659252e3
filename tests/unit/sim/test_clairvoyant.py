# SPDX-License-Identifier: Apache-2.0
"""The clairvoyant search: what it finds exists, fits, and on tiny traces is the best there is."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.cli.app import run
from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.errors import UsageFault
from slurm_coloc.sim.bound import bound_s
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.estimates import request_maker
from slurm_coloc.sim.machine import Machine, parse_machine
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.search.clairvoyant import Clairvoyant, Found, best_known
from slurm_coloc.sim.search.clairvoyant.model import Model
from slurm_coloc.sim.search.clairvoyant.search import Planned, replay
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, simulate
from slurm_coloc.sim.trace import TraceJob


def arrival_bound_s(jobs: list[TraceJob], gpus: int, capacity: float = REFERENCE.capacity) -> float:
    """Seconds that no schedule on whole GPUs under MPS can beat in the reference model; never less
    than ``sim.bound.bound_s``.

    Proof. Call run time alone x GPUs x SM activity a job's work. At speed v a job does v x GPUs x
    SM activity of work a second, and v <= 1, so by time t job j has done at most
    min(work_j, (t - submit_j) x GPUs_j x smact_j); P(t) is the sum of that over all jobs. After t
    all GPUs together do at most C x GPUs of work a second: in the model the sum of s v on a GPU
    never passes C, nor does a job alone on it (s <= 1 < C). So a makespan T has
    T >= t + (W - P(t)) / (C x GPUs) for every t, W being all work. That is piecewise linear in t
    and bends only where a job is submitted or could be done, so those t are enough. With
    t = submit_k and all earlier work taken as done it is bound_s, which therefore is not larger.
    """
    if not jobs:
        return 0.0
    all_work = sum(job.work_s for job in jobs)
    bends = [job.submit_s for job in jobs] + [job.submit_s + job.run_s for job in jobs]

    def done(at_s: float) -> float:
        return sum(
            min(job.run_s, max(0.0, at_s - job.submit_s)) * job.gpus * job.activity.smact
            for job in jobs
        )

    return max(
        max(job.submit_s + job.run_s for job in jobs),
        max(at_s + (all_work - done(at_s)) / (capacity * gpus) for at_s in bends),
    )


def trace(seed: int, count: int, gpus: int) -> list[TraceJob]:
    """Jobs whose memory and activity let some, but not all, share a 40 GB GPU."""
    rng = Random(seed)
    jobs, submit_s = [], 0.0
    for number in range(1, count + 1):
        submit_s += rng.choice((0.0, 100.0, 700.0))
        wide = gpus > 1 and rng.random() < 0.2
        smact = Activity(rng.choice((0.15, 0.3, 0.5, 0.8, 0.9)))
        memory_mib = rng.choice((2000, 6000, 14000, 25000))
        run_s = round(rng.uniform(200.0, 3000.0), 1)
        jobs.append(TraceJob(number, "", submit_s, 2 if wide else 1, run_s, memory_mib, smact))
    return jobs


def most_mib(found: Found, jobs: list[TraceJob], machine: Machine) -> list[int]:
    """The most memory that a schedule holds at once, per seat."""
    mib = {job.id: job.memory_mib for job in jobs}
    most = [0] * len(machine.devices)
    for moment in [one.start_s for one in found.schedule]:
        now = [one for one in found.schedule if one.start_s <= moment < one.end_s - 1e-6]
        for slot in range(len(most)):
            held = sum(mib[one.job_id] for one in now if slot in one.slots)
            most[slot] = max(most[slot], held)
    return most


@pytest.mark.parametrize("gpus", ["1xa100-40gb", "4xa100-40gb", "2xa100-80gb,2xa100-40gb"])
def test_what_is_found_exists(gpus: str) -> None:
    """Every job runs once, after its submission, within the memory; no policy is better."""
    machine = parse_machine(gpus)
    jobs = trace(3, 20, machine.gpus)
    found = best_known(jobs, machine, evaluations=1500)
    assert [one.job_id for one in found.schedule] == [job.id for job in jobs]
    for one, job in zip(found.schedule, jobs, strict=True):
        assert one.start_s >= job.submit_s
        assert one.end_s - one.start_s >= job.run_s - 1e-6
        assert len(set(one.slots)) == job.gpus
    held = most_mib(found, jobs, machine)
    assert all(mib <= device.usable_mib for mib, device in zip(held, machine.devices, strict=True))
    assert found.outcome.oom == 0
    assert found.makespan_s >= arrival_bound_s(jobs, machine.gpus)
    requests = request_maker("oracle", jobs, Random(0), machine.devices[0].usable_mib)
    first_fit = Simulation(jobs, machine, policy("first-fit"), Setting(), requests).run()
    assert found.makespan_s <= first_fit.makespan_s


@pytest.mark.parametrize("seed", range(6))
def test_the_engine_sees_the_same_times(seed: int) -> None:
    """The engine and the search compute every end on their own; 1e-6 apart at most."""
    jobs, machine = trace(seed, 30, 4), parse_machine("4xa100-40gb")
    found = best_known(jobs, machine, evaluations=300, seed=seed)
    ends = {record.job.id: record.end_s for record in found.outcome.records}
    assert {one.job_id: one.end_s for one in found.schedule} == pytest.approx(ends, rel=1e-6)


def test_a_schedule_that_cannot_be_is_noticed() -> None:
    jobs, machine = trace(1, 2, 1), parse_machine("1xa100-40gb")
    wrong = [Planned(job.id, (0,), job.submit_s, job.submit_s + 1.0) for job in jobs]
    with pytest.raises(AssertionError, match="planned was"):
        replay(Model(jobs, machine, Setting()), machine, Setting(), wrong)


def test_one_seed_gives_one_schedule() -> None:
    jobs, machine = trace(5, 25, 4), parse_machine("4xa100-40gb")
    first, same, other = (
        best_known(jobs, machine, evaluations=400, seed=seed).schedule for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other


def test_a_job_that_shares_with_nobody_stays_alone() -> None:
    jobs = [replace(job, coloc=job.id != 3, gpus=1) for job in trace(2, 8, 1)]
    found = best_known(jobs, parse_machine("1xa100-40gb"), evaluations=500)
    alone = found.schedule[2]
    assert alone.end_s - alone.start_s == pytest.approx(jobs[2].run_s)
    for one in found.schedule[:2] + found.schedule[3:]:
        assert one.end_s <= alone.start_s + 1e-6 or one.start_s >= alone.end_s - 1e-6


def test_it_stands_where_a_policy_stands() -> None:
    """An experiment with it gives the found schedule's figures."""
    jobs, machine = trace(4, 15, 4), parse_machine("4xa100-40gb")
    figures = simulate(Experiment(jobs, machine, Clairvoyant(200), seed=3))
    found = best_known(jobs, machine, evaluations=200, seed=3)
    assert figures["makespan_s"] == found.makespan_s


@given(seed=st.integers(0, 10_000), count=st.integers(1, 12), gpus=st.sampled_from([1, 2, 4]))
@settings(max_examples=25, deadline=None)
def test_the_bounds_are_in_order(seed: int, count: int, gpus: int) -> None:
    """The bound by arrival is the higher one, and no schedule is below it."""
    jobs, machine = trace(seed, count, gpus), parse_machine(f"{gpus}xa100-40gb")
    bound = arrival_bound_s(jobs, gpus)
    assert bound_s(jobs, gpus) <= bound * (1 + 1e-12)
    assert best_known(jobs, machine, evaluations=30).makespan_s >= bound * (1 - 1e-9)


def test_slow_arrivals_raise_the_bound() -> None:
    """Of two jobs the first keeps one of two GPUs half busy until the second comes at its end."""
    first = TraceJob(1, "", 0.0, 1, 1000.0, 1000, Activity(0.5))
    second = TraceJob(2, "", 500.0, 2, 1000.0, 1000, Activity(1.0))
    # At 500 s 250 of 2,500 are done; 2,250 at 1.05 on each of two GPUs take 1,071 s.
    assert arrival_bound_s([first, second], 2) == pytest.approx(500 + 2250 / 2.1)
    assert bound_s([first, second], 2) == pytest.approx(1500.0)


@pytest.mark.parametrize(
    ("gpus", "setting"),
    [("1xa100-40gb:3g.20gb+4g.20gb", Setting()), ("1xa100-40gb", Setting(node_cpus=64))],
)
def test_what_it_does_not_search(gpus: str, setting: Setting) -> None:
    with pytest.raises(UsageFault, match="clairvoyant"):
        best_known(trace(1, 2, 1), parse_machine(gpus), setting, evaluations=10)


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs that do not slow each other down end with the longer one."""
    path = tmp_path / "trace.csv"
    path.write_text(
        "job,name,submit_s,gpus,run_s,memory_mib,smact\n1,a,0,1,100,900,0\n2,b,0,1,300,900,0\n"
    )
    words = ["coloc", "simulate", "--trace", str(path), "--policy", "clairvoyant", "--search", "50"]
    monkeypatch.setattr("sys.argv", [*words, "--gpus", "1xa100-40gb", "--json"])
    assert run() == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["policy"] == "clairvoyant"
    assert answer["makespan_s"] == 300.0


def test_a_job_that_fits_nowhere() -> None:
    jobs = [replace(trace(1, 1, 1)[0], id=77, gpus=5)]
    with pytest.raises(UsageFault, match="job 77: 5 GPUs"):
        best_known(jobs, parse_machine("4xa100-40gb"), evaluations=10)


# ---- the optimum of tiny traces, by trying everything ------------------------------------------


class Everything:
    """All schedules that start jobs at the end of any job, or together with one that was just
    submitted; every job may be held back at will."""

    def __init__(self, jobs: list[TraceJob], gpus: int, room_mib: int) -> None:
        self.jobs, self.gpus, self.room_mib = jobs, gpus, room_mib
        self.best_s = sum(job.run_s for job in jobs) + max(job.submit_s for job in jobs) + 1.0
        self.decide(0.0, {}, {}, list(range(len(jobs))), False)

    def decide(
        self,
        now: float,
        at: dict[int, tuple[int, ...]],
        left: dict[int, float],
        wait: list[int],
        ended: bool,
    ) -> None:
        """Start nothing now, or some of the jobs that wait."""
        self.go_on(now, at, left, wait)
        self.start(now, at, left, wait, 0, ended)

    def start(
        self,
        now: float,
        at: dict[int, tuple[int, ...]],
        left: dict[int, float],
        wait: list[int],
        first: int,
        may: bool,
    ) -> None:
        """One more job, of those that wait from ``first`` on, so that each set is tried once."""
        for index in range(first, len(wait)):
            job = wait[index]
            one = self.jobs[job]
            if one.submit_s > now:
                continue
            places = [(gpu,) for gpu in range(self.gpus)] if one.gpus == 1 else [(0, 1)]
            for slots in places:
                placed = {**at, job: slots}
                if any(self.held(placed, slot) > self.room_mib for slot in slots):
                    continue
                rest = wait[:index] + wait[index + 1 :]
                begun = {**left, job: one.run_s}
                together = may or one.submit_s == now
                if together:
                    self.go_on(now, placed, begun, rest)
                self.start(now, placed, begun, rest, index, together)

    def held(self, at: dict[int, tuple[int, ...]], slot: int) -> int:
        return sum(self.jobs[job].memory_mib for job, slots in at.items() if slot in slots)

    def go_on(
        self, now: float, at: dict[int, tuple[int, ...]], left: dict[int, float], wait: list[int]
    ) -> None:
        """To the next submission or end."""
        work = sum(left[job] * self.jobs[job].activity.smact * self.jobs[job].gpus for job in left)
        work += sum(self.jobs[job].work_s for job in wait)
        if now + work / (1.05 * self.gpus) >= self.best_s:
            return
        if not at and not wait:
            self.best_s = now
            return
        speed = dict.fromkeys(at, 1.0)
        for slot in range(self.gpus):
            here = [job for job, slots in at.items() if slot in slots]
            found = REFERENCE.speeds([self.jobs[job].activity for job in here])
            for job, value in zip(here, found, strict=True):
                speed[job] = min(speed[job], value)
        ends = [now + left[job] / speed[job] for job in at]
        soon = [self.jobs[job].submit_s for job in wait if self.jobs[job].submit_s > now]
        if not ends and not soon:
            return
        then = min(ends + soon)
        after = {job: left[job] - (then - now) * speed[job] for job in at}
        stay = {job: slots for job, slots in at.items() if after[job] > 1e-9}
        self.decide(then, stay, {job: after[job] for job in stay}, wait, len(stay) < len(at))


@pytest.mark.parametrize(("count", "gpus"), [(6, 1), (4, 2)])
def test_tiny_traces_are_solved(count: int, gpus: int) -> None:
    machine = parse_machine(f"{gpus}xa100-40gb")
    held_back = 0
    for seed in range(4):
        jobs = trace(seed, count, gpus)
        best_s = Everything(jobs, gpus, machine.devices[0].usable_mib).best_s
        found = best_known(jobs, machine, evaluations=4000, seed=seed, restarts=6)
        assert found.makespan_s == pytest.approx(best_s, rel=1e-6), seed
        requests = request_maker("oracle", jobs, Random(0), machine.devices[0].usable_mib)
        greedy = Simulation(jobs, machine, policy("first-fit"), Setting(), requests).run()
        held_back += greedy.makespan_s > best_s * 1.001
    assert held_back, "traces that a greedy policy solves too show nothing"
