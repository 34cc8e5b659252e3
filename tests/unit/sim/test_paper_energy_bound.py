# SPDX-License-Identifier: Apache-2.0
"""The least energy of a trace: nothing that is played is below it."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.core.place.placing import Conditions
from slurm_coloc.sim.bound import bound_s
from slurm_coloc.sim.engine import Simulation
from slurm_coloc.sim.estimates import request_maker
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.policies import policy
from slurm_coloc.sim.power import PROFILES, THESIS
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.trace import TraceJob
from tests.paper.energy_bound import energy_bound_j

JOB = st.builds(
    lambda submit_s, run_s, smact, drama, gib: (submit_s, run_s, Activity(smact, None, drama), gib),
    st.integers(0, 4000),
    st.integers(60, 4000),
    st.floats(0.02, 1.0),
    st.one_of(st.none(), st.floats(0.0, 0.7)),
    st.integers(1, 38),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(JOB, min_size=1, max_size=12), st.sampled_from(["exclusive", "magm", "best-fit"]))
def test_nothing_that_is_played_needs_less(
    drawn: list[tuple[int, int, Activity, int]], name: str
) -> None:
    jobs = [
        TraceJob(number, "", submit_s, 1, run_s, 1024 * gib, activity)
        for number, (submit_s, run_s, activity, gib) in enumerate(drawn)
    ]
    machine = parse_machine("2xa100-40gb")
    for power in (THESIS, PROFILES):
        setting = Setting(conditions=Conditions(), power=power, depth=5)
        request = request_maker("oracle", jobs, Random(0), machine.devices[0].usable_mib)
        outcome = Simulation(jobs, machine, policy(name), setting, request).run()
        assert outcome.joules >= energy_bound_j(jobs, machine.gpus, power) * (1 - 1e-9)


def test_one_job_that_keeps_every_gpu_busy_meets_it() -> None:
    jobs = [TraceJob(1, "", 0, 2, 1000, 1024, Activity(1.0, None, 0.0))]
    # 2 GPUs, 1,000 s, and no way to spread the work: only the hull of the curve is below.
    least = energy_bound_j(jobs, 2, PROFILES)
    exact = 2 * 1000 * (29.05 + 232.8)
    assert bound_s(jobs, 2) == 1000
    assert 0.98 * exact < least <= exact
