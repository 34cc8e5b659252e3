# SPDX-License-Identifier: Apache-2.0
"""What holds for every trace, machine, setting and policy.

The pieces that an outcome records are checked by a second computation that shares nothing with the
engine but the model of interference.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.interference import REFERENCE
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.core.place.steering import Rules
from slurm_coloc.sim.bound import bound_s
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.estimates import request_maker
from slurm_coloc.sim.machine import Machine, parse_machine
from slurm_coloc.sim.outcome import Outcome, Piece
from slurm_coloc.sim.policies import policy, registry
from slurm_coloc.sim.polled import Times
from slurm_coloc.sim.search.lookahead import Lookahead
from slurm_coloc.sim.setting import Priority, Recovery, Setting
from slurm_coloc.sim.steered import Steered, steered_setting
from slurm_coloc.sim.trace import TraceJob

WHOLE = ["1x1xa100-40gb", "1x4xa100-40gb", "2x2xa100-40gb", "1x2xa100-40gb,1x2xh100-80gb"]
CUT = ["2xa100-40gb:3g.20gb+4g.20gb", "4xa100-40gb:7g.40gb/3c/3c@2", "2xa100-80gb:2g.20gb+1g.10gb"]
PLANS = {"steered": False, "planned": True}
# Traces come from a seed, so shrinking would only try others.
SMALL = settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@st.composite
def jobs(draw: st.DrawFn, most: int = 14) -> list[TraceJob]:
    """A trace; the seed decides the figures so that shrinking is quick."""
    rng = Random(draw(st.integers(0, 2**32)))
    limited, wide = draw(st.booleans()), draw(st.booleans())
    out = []
    for number in range(draw(st.integers(1, most))):
        run_s = rng.choice((30.0, rng.uniform(60, 4000), rng.expovariate(1 / 1500)))
        smact = rng.uniform(0.02, 1.0)
        out.append(
            TraceJob(
                number,
                f"t{rng.randrange(4)}",
                rng.choice((0.0, rng.uniform(0, 4000))),
                rng.choice((1, 2, 4)) if wide and rng.random() < 0.4 else 1,
                run_s,
                rng.randrange(500, 39_000),
                Activity(smact, drama=rng.choice((None, smact / 2))),
                user=f"u{rng.randrange(3)}",
                account=f"a{rng.randrange(2)}",
                limit_s=run_s * rng.uniform(0.6, 3.0) if limited and rng.random() < 0.7 else None,
                coloc=rng.random() < 0.8,
                cpus=rng.randrange(0, 9),
                host_mib=rng.randrange(0, 9000),
            )
        )
    return out


@st.composite
def worlds(draw: st.DrawFn) -> Setting:
    """A way of running a cluster."""
    conditions = Conditions(
        by_plan=draw(st.booleans()),
        margin_mib=draw(st.sampled_from([None, 500])),
        smact_at_most=draw(st.sampled_from([None, 0.8])),
        budget=draw(st.sampled_from([None, 1.2])),
        jobs=draw(st.sampled_from([2, 8])),
        share_with=draw(st.sampled_from(["user", "account", "anyone"])),
        max_slowdown=draw(st.sampled_from([None, 1.5])),
        idle_first=draw(st.booleans()),
        keep_whole=draw(st.booleans()),
    )
    return Setting(
        conditions,
        method=draw(st.sampled_from(["mps", "streams"])),
        depth=draw(st.sampled_from([1, 3, 50])),
        priority=draw(st.sampled_from([None, Priority(period_s=600.0)])),
        recovery=Recovery(
            more_mib=draw(st.sampled_from([(), (5000,)])),
            joinable=draw(st.booleans()),
            first=draw(st.booleans()),
            forgiven=draw(st.integers(0, 1)),
        ),
        fence=draw(st.booleans()),
        settle=draw(st.booleans()),
        multi_user_mps=draw(st.booleans()),
        node_cpus=draw(st.sampled_from([0, 16])),
        node_host_mib=draw(st.sampled_from([0, 20_000])),
        stretch=draw(st.booleans()),
        expect_runs=draw(st.booleans()),
        guess_runs=draw(st.booleans()),
        learn_peaks=draw(st.booleans()),
        logs=draw(st.sampled_from([None, 0.5])),
        pool=draw(st.sampled_from([None, 0, 1])),
        record=True,
    )


STEERED = {
    name: Steered(policy("auto"), Rules("auto"), Times(30.0, 91.0), plans)
    for name, plans in PLANS.items()
}
names = st.sampled_from(sorted([*registry(), *STEERED]))
estimators = st.sampled_from(["oracle", "none", "error:0.2"])


def run(
    trace: Sequence[TraceJob], machine: Machine, setting: Setting, name: str, estimator: str
) -> Outcome:
    largest = max(device.usable_mib for device in machine.devices)
    told = request_maker(estimator, trace, Random(1), largest)
    if name in STEERED:
        assume(not any(device.part for device in machine.devices))
        steered = replace(
            STEERED[name].fresh(),
            rules=replace(STEERED[name].rules, share_with=setting.conditions.share_with),
        )
        setting = steered_setting(setting, steered)
        return Simulation(trace, machine, steered, setting, told).run()
    # With all its tries planning ahead would be most of the time here.
    chosen = Lookahead(tries=3) if name == "lookahead" else policy(name)
    return Simulation(trace, machine, chosen, setting, told).run()


def fitting(trace: Sequence[TraceJob], machine: Machine) -> None:
    assume(all(job.gpus <= machine.gpus for job in trace))


@SMALL
@given(jobs(), st.sampled_from(WHOLE + CUT), worlds(), names, estimators)
def test_no_job_is_lost_or_doubled_and_nothing_is_held_twice(
    trace: list[TraceJob], text: str, setting: Setting, name: str, estimator: str
) -> None:
    machine = parse_machine(text)
    fitting(trace, machine)
    found = run(trace, machine, setting, name, estimator)
    assert [record.job.id for record in found.records] == [job.id for job in trace]
    runs: dict[int, list[Piece]] = defaultdict(list)
    for piece in found.pieces:
        runs[piece.job_id].append(piece)
    for record in found.records:
        job, pieces = record.job, runs[record.job.id]
        assert record.end_s is not None and record.start_s is not None
        assert record.start_s >= job.submit_s
        assert record.tries == record.oom + 1
        # Each try has as many GPUs as the job asked for, all at the same time, none twice.
        assert len(pieces) == record.tries * job.gpus
        for begin in {piece.start_s for piece in pieces}:
            together = [piece for piece in pieces if piece.start_s == begin]
            assert len({machine.devices[piece.slot].gpu for piece in together}) == job.gpus
            assert len({piece.end_s for piece in together}) == 1
        assert max(piece.end_s for piece in pieces) == record.end_s
        assert sum(piece.end_s - piece.start_s for piece in pieces) == pytest.approx(
            record.ran_s * job.gpus
        )
    assert found.oom == sum(record.oom for record in found.records)
    assert found.timeouts == sum(record.timed_out for record in found.records)
    end_s = found.makespan_s
    kinds = {device.gpu: device.kind for device in machine.devices}
    idle_w = sum(setting.power.on(kind).idle_w for kind in kinds.values())
    assert found.joules >= idle_w * end_s * (1 - 1e-9)


@SMALL
@given(
    jobs(), st.sampled_from(WHOLE + CUT), worlds(), names, st.sampled_from(["oracle", "error:0.2"])
)
def test_no_gpu_and_no_node_is_over_what_it_has_by_plan(
    trace: list[TraceJob], text: str, setting: Setting, name: str, estimator: str
) -> None:
    setting = replace(setting, conditions=replace(setting.conditions, by_plan=True))
    machine = parse_machine(text)
    fitting(trace, machine)
    found = run(trace, machine, setting, name, estimator)
    job_of = {job.id: job for job in trace}
    for now_s in {piece.start_s for piece in found.pieces}:
        here = [piece for piece in found.pieces if piece.start_s <= now_s < piece.end_s]
        banks: dict[int, list[Piece]] = defaultdict(list)
        cpus: dict[int, float] = defaultdict(float)
        mib: dict[int, float] = defaultdict(float)
        for piece in here:
            device, job = machine.devices[piece.slot], job_of[piece.job_id]
            banks[device.bank].append(piece)
            cpus[device.node] += job.cpus / job.gpus
            mib[device.node] += job.host_mib / job.gpus
        for pieces in banks.values():
            device = machine.devices[pieces[0].slot]
            if len(pieces) > 1:
                needs = [piece.need_mib for piece in pieces]
                assert None not in needs
                assert sum(need or 0 for need in needs) <= device.usable_mib
        if setting.node_cpus:
            assert max(cpus.values(), default=0.0) <= setting.node_cpus + 1e-6
        if setting.node_host_mib:
            assert max(mib.values(), default=0.0) <= setting.node_host_mib + 1e-3


@SMALL
@given(jobs(), st.sampled_from(WHOLE), worlds(), names, estimators)
def test_each_jobs_work_is_conserved(
    trace: list[TraceJob], text: str, setting: Setting, name: str, estimator: str
) -> None:
    """The integral of a run's speed over its time is what it needs alone, or its limit's part."""
    machine = parse_machine(text)
    fitting(trace, machine)
    setting = replace(setting, multi_user_mps=True)
    found = run(trace, machine, setting, name, estimator)
    done = work_done(trace, found.pieces, setting.method)
    for record in found.records:
        if record.timed_out:
            assert done[record.job.id] < record.job.run_s
            if setting.stretch:
                assert done[record.job.id] == pytest.approx(record.job.limit_s, abs=1e-3)
            else:
                assert record.last_s == pytest.approx(record.job.limit_s, abs=1e-3)
        else:
            assert done[record.job.id] == pytest.approx(record.job.run_s, rel=1e-6, abs=1e-3)


def work_done(trace: Sequence[TraceJob], pieces: Sequence[Piece], method: str) -> dict[int, float]:
    """Seconds alone that the last run of each job did, from who was where and when."""
    job_of = {job.id: job for job in trace}
    moments = sorted({piece.start_s for piece in pieces} | {piece.end_s for piece in pieces})
    last = {job.id: max(p.start_s for p in pieces if p.job_id == job.id) for job in trace}
    done = dict.fromkeys(job_of, 0.0)
    for begin, end in pairwise(moments):
        slots: dict[int, list[int]] = defaultdict(list)
        for piece in pieces:
            if piece.start_s <= begin and end <= piece.end_s:
                slots[piece.slot].append(piece.job_id)
        slowest: dict[int, float] = {}
        for here in slots.values():
            speeds = REFERENCE.speeds([job_of[i].activity for i in here], method)
            for i, speed in zip(here, speeds, strict=True):
                slowest[i] = min(slowest.get(i, 1.0), speed)
        for i, speed in slowest.items():
            if begin >= last[i]:
                done[i] += speed * (end - begin)
    return done


@SMALL
@given(jobs(), st.sampled_from(WHOLE + CUT), worlds(), names, estimators)
def test_the_bound_is_never_beaten(
    trace: list[TraceJob], text: str, setting: Setting, name: str, estimator: str
) -> None:
    machine = parse_machine(text)
    fitting(trace, machine)
    trace = [replace(job, limit_s=None) for job in trace]
    found = run(trace, machine, setting, name, estimator)
    assert found.makespan_s >= bound_s(trace, machine.gpus) * (1 - 1e-9)


@SMALL
@given(jobs(), st.sampled_from(WHOLE + CUT), worlds(), names, estimators)
def test_the_same_input_gives_the_same_output(
    trace: list[TraceJob], text: str, setting: Setting, name: str, estimator: str
) -> None:
    machine = parse_machine(text)
    fitting(trace, machine)
    one, other = (run(trace, machine, setting, name, estimator) for _ in range(2))
    assert one.figures() == other.figures()
    assert list(one.pieces) == list(other.pieces)


@SMALL
@given(jobs(), st.sampled_from(WHOLE), worlds())
def test_without_neighbours_nobody_is_slower_or_runs_out(
    trace: list[TraceJob], text: str, setting: Setting
) -> None:
    machine = parse_machine(text)
    fitting(trace, machine)
    trace = [replace(job, limit_s=None) for job in trace]
    setting = replace(setting, learn_peaks=False)  # jobs of one name are not alike here
    found = run(trace, machine, setting, "exclusive", "oracle")
    assert found.oom == 0
    for record in found.records:
        assert record.last_s == pytest.approx(record.job.run_s, abs=1e-6)


@SMALL
@given(jobs(), st.sampled_from(WHOLE), worlds(), names)
def test_true_needs_with_a_margin_never_run_out(
    trace: list[TraceJob], text: str, setting: Setting, name: str
) -> None:
    setting = replace(
        setting, conditions=replace(setting.conditions, by_plan=True), learn_peaks=False
    )
    machine = parse_machine(text)
    fitting(trace, machine)
    assert run(trace, machine, setting, name, "oracle").oom == 0
