# SPDX-License-Identifier: Apache-2.0
"""Steered placement as the simulator plays it: Slurm's order, and colocd's looks between."""

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.sim.trace import TraceJob
from tests.tracelab.predict import predict, spread
from tests.tracelab.scale import Scale
from tests.tracelab.ways import WAYS
from tests.tracelab.workload import asked

GPU = 39
SCALE = Scale.at(30.0)
STEERED = WAYS["steered"]


def job(number: int, submit_s: float, smact: float, gpus: int = 1, run_s: float = 600) -> TraceJob:
    return TraceJob(number, "x", submit_s, gpus, run_s, 12_000, Activity(smact))


def starts(machine: str, *jobs: TraceJob) -> list[float | None]:
    found = predict(asked(jobs, "oracle", GPU), STEERED, machine, SCALE)
    assert all(one.end_s is not None for one in found.records)
    return [one.start_s for one in found.records]


def test_whoever_has_no_room_holds_back_all_behind() -> None:
    """Two whole GPUs wait for one of two; a share behind them does not pass, as in Slurm."""
    first, wide, small = starts(
        "2xa100-40gb", job(1, 0, 0.3), job(2, 100, 0.3, gpus=2), job(3, 200, 0.3)
    )
    assert first == 0 and wide is not None and small is not None
    assert wide >= 600 and small >= wide + 600


def test_whoever_waits_at_the_gate_is_passed() -> None:
    """The share has room beside the busy one, by plan, but is kept at the gate. When three GPUs are
    given back Slurm gives them to the job behind it, before colocd has looked."""
    jobs = [
        job(1, 0, 0.9, run_s=9000),
        job(2, 0, 0.3, gpus=3, run_s=615),
        job(3, 300, 0.3),
        job(4, 400, 0.3, gpus=3),
    ]
    begins = starts("dgx-station-a100", *jobs)
    assert begins[3] is not None and begins[2] is not None
    assert 615 <= begins[3] < begins[2]


def test_the_next_look_finds_the_gate_open() -> None:
    begins = starts("1xa100-40gb", job(1, 0, 0.9, run_s=600), job(2, 100, 0.3))
    assert begins[1] is not None and 600 <= begins[1] <= 600 + 5 * SCALE.compress


def test_how_far_it_swings() -> None:
    jobs = asked([job(n, 50.0 * n, 0.4) for n in range(8)], "oracle", GPU)
    scale = Scale.at(30.0)
    found = spread(jobs, STEERED, "2xa100-40gb", Scale(30.0, 1.0, scale.window_s))
    assert len(found) == 25 and len({one.makespan_s for one in found}) > 3
