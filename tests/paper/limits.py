# SPDX-License-Identifier: Apache-2.0
"""What is possible on a trace: bounds that nothing beats, and the best schedule that is known."""

import sys
import time
from statistics import fmean

from estimator.power.thesis import run_way
from slurm_coloc.sim.search.clairvoyant import best_known
from slurm_coloc.sim.setting import Setting
from tests.paper.cases import exclusive
from tests.paper.energy_bound import energy_bound_j
from tests.paper.play import Lab
from tests.paper.rows import Limits

#: schedules that the search tries: a minute or two a trace
EVALUATIONS = 400_000


def limits(lab: Lab, trace: str) -> Limits:
    """Of a trace, in per cent less than exclusive. Bounds are means over the jittered runs, the
    search is of the trace as it stands."""
    alone = exclusive(trace)
    power = Setting().power
    least = [energy_bound_j(jobs, lab.machine.gpus, power) for jobs in lab.variations(trace)]
    energy = fmean(
        100 * (1 - bound / 1e6 / most)
        for bound, most in zip(least, lab.values(alone, "energy_mj"), strict=True)
    )
    assert alone.way is not None
    most = run_way(alone.way, lab.jobs(trace), lab.machine)
    began = time.monotonic()
    found = best_known(lab.jobs(trace), lab.machine, Setting(), EVALUATIONS).outcome
    took = time.monotonic() - began
    print(f"  {trace}: clairvoyant search ({took:.1f} s)", file=sys.stderr, flush=True)
    return Limits(
        time=f"{lab.bound(trace):.1f}",
        clairvoyant=f"{100 * (1 - found.makespan_s / most.makespan_s):.1f}",
        energy=f"{energy:.1f}",
        clairvoyant_energy=f"{100 * (1 - found.joules / most.joules):.1f}",
    )
