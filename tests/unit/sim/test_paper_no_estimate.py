# SPDX-License-Identifier: Apache-2.0
"""Best without any estimate: every job gets a whole GPU, none is left behind."""

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.sim.machine import parse_machine
from slurm_coloc.sim.policies import best_policy, best_setting
from slurm_coloc.sim.setting import Setting
from slurm_coloc.sim.simulate import Experiment, play
from slurm_coloc.sim.trace import TraceJob


def test_jobs_without_an_estimate_run_alone() -> None:
    jobs = [TraceJob(n, f"j{n}", 10.0 * n, 1, 300.0, 4096, Activity(0.3)) for n in range(7)]
    machine = parse_machine("2xa100-40gb")
    setting = best_setting(Setting(), machine.gpus)
    outcome, _ = play(Experiment(jobs, machine, best_policy(), setting, "none"))
    assert all(record.end_s is not None and record.last_s == 300.0 for record in outcome.records)
    # Four on one GPU and three on the other, one after the other.
    assert 1200 <= outcome.makespan_s <= 1300
