# SPDX-License-Identifier: Apache-2.0
"""`make trace-lab` in small: some jobs through a lab and the simulator. How near the two are is not
judged here: times on a busy machine are not."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from slurm_coloc.sim.trace import TraceJob
from tests.tracelab.play import play
from tests.tracelab.predict import predict
from tests.tracelab.records import lost, recovered
from tests.tracelab.scale import Scale
from tests.tracelab.stage import Stage, spec
from tests.tracelab.ways import WAYS
from tests.tracelab.workload import asked

MACHINE = "2xa100-40gb"
SCALE = Scale.at(200.0)


def job(number: int, memory_mib: int, gpus: int = 1, known_mib: int | None = None) -> TraceJob:
    known = {"known": known_mib or memory_mib}
    activity = Activity(0.4)
    when_s = 20.0 * number
    return TraceJob(number, "x", when_s, gpus, 300.0, memory_mib, activity, estimates=known)


JOBS = [job(1, 9_000), job(2, 9_000), job(3, 12_000, known_mib=7_000), job(4, 6_000, gpus=2)]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_a_trace_through_a_lab(make_lab: Callable[..., Lab]) -> None:
    way = WAYS["native"]
    wish = spec("unnamed", way, MACHINE, SCALE)
    named = {one.name: getattr(wish, one.name) for one in fields(LabSpec) if one.name != "name"}
    stage = Stage(make_lab(**named), way, SCALE)
    jobs = asked(JOBS, "known", stage.shards_per_gpu, shares=way.shares)
    assert [one.shards for one in jobs] == [9, 9, 7, 0]
    stage.ready()
    stage.rehearse(jobs)
    played, given = play(stage, jobs, 120.0)
    found = played.outcome(jobs, SCALE)
    assert given == jobs
    assert lost(found) == 0, stage.lab.logs(20)
    assert found.records[2].oom >= 1 and recovered(found) == 1
    assert all(record.ran_s >= 300.0 - SCALE.compress for record in found.records)
    assert found.joules > 0
    simulated = predict(jobs, way, MACHINE, SCALE)
    assert (simulated.oom, lost(simulated)) == (1, 0)
