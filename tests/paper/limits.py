# SPDX-License-Identifier: Apache-2.0
"""What is possible on a trace: bounds that nothing beats, and the best schedule that is known."""

from statistics import fmean

from slurm_coloc.sim.bound import energy_bound_j
from slurm_coloc.sim.setting import Setting
from tests.paper.cases import exclusive
from tests.paper.lines import Limits
from tests.paper.play import Lab


def limits(lab: Lab, trace: str) -> Limits:
    """Of a trace; all in per cent less than exclusive."""
    alone = exclusive(trace)
    power = Setting().power
    least = [energy_bound_j(jobs, lab.machine.gpus, power) for jobs in lab.variations(trace)]
    energy = fmean(
        100 * (1 - bound / 1e6 / most)
        for bound, most in zip(least, lab.values(alone, "energy_mj"), strict=True)
    )
    return Limits(f"{lab.bound(trace):.1f}", clairvoyant(lab, trace), f"{energy:.1f}")


def clairvoyant(lab: Lab, trace: str) -> str:
    """The best schedule that was found for the trace as it stands, with everything known."""
    return "-"
