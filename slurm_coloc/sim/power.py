# SPDX-License-Identifier: Apache-2.0
"""Power of one GPU from its SM and DRAM activity.

Fit, errors and what the sources disagree on: estimator/power/README.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from slurm_coloc.core.place.activity import Activity
from slurm_coloc.errors import UsageFault

#: DRAM activity over SM activity where only the latter is known: least squares through the origin
#: over 51 solo profiles of trainings on an A100-40GB.
DRAM_PER_SM = 0.44

#: Board power in W, NVIDIA's data sheets; SXM where there are several boards.
TDP_W: Mapping[str, int] = MappingProxyType(
    {
        "gtx1080ti-11gb": 250,
        "rtx2070-8gb": 175,
        "rtx2080-8gb": 215,
        "rtx2080ti-11gb": 250,
        "rtx3060-12gb": 170,
        "rtx3070-8gb": 220,
        "rtx3080-10gb": 320,
        "rtx4060-8gb": 115,
        "rtx4060ti-16gb": 165,
        "rtx4070-12gb": 200,
        "rtx4080-16gb": 320,
        "rtx5080-16gb": 360,
        "rtx5090-32gb": 575,
        "rtx6000ada-48gb": 300,
        "a4000-16gb": 140,
        "a5000-24gb": 230,
        "a6000-48gb": 300,
        "p100-16gb": 300,
        "t4-16gb": 70,
        "v100-16gb": 300,
        "v100-32gb": 300,
        "rtx3090-24gb": 350,
        "rtx4090-24gb": 450,
        "a10-24gb": 150,
        "a30-24gb": 165,
        "l4-24gb": 72,
        "l40s-48gb": 350,
        "a40-48gb": 300,
        "a100-40gb": 400,
        "a100-80gb": 400,
        "h100-80gb": 700,
        "h100-94gb": 400,
        "h200-141gb": 700,
        "b200-180gb": 1000,
    }
)
#: what was measured; every other type is assumed to follow its curve by the ratio of board power
MEASURED = ("a100-40gb", "a100-80gb")


def dram_activity(activity: Activity) -> float:
    """A job's DRAM activity (ratio), or what is usual at its SM activity."""
    return DRAM_PER_SM * activity.smact if activity.drama is None else activity.drama


@dataclass(frozen=True, slots=True)
class Power:
    """Watts: ``idle_w`` without a job; else ``base_w`` + ``smact_w`` SM activity + ``dram_w`` DRAM
    activity, at most ``limit_w`` and at least ``idle_w``. Constants are of an A100-40GB."""

    name: str
    idle_w: float
    base_w: float
    smact_w: float
    dram_w: float
    limit_w: float

    def watts(self, smact: float, drama: float | None = None) -> float:
        """Mean power at the activities of all jobs together (ratios; sums may pass 1)."""
        if smact <= 0:
            return self.idle_w
        dram = DRAM_PER_SM * smact if drama is None else drama
        drawn = self.base_w + self.smact_w * smact + self.dram_w * dram
        return min(self.limit_w, max(self.idle_w, drawn))

    def on(self, kind: str) -> "Power":
        """The curve on another type of GPU: as measured, or times the ratio of board power up to
        that board's own (an assumption: no profile of it is known)."""
        kind = kind.partition(":")[0]
        if kind in MEASURED or kind not in TDP_W:
            return self
        ratio = TDP_W[kind] / TDP_W[MEASURED[0]]
        return replace(
            self,
            idle_w=self.idle_w * ratio,
            base_w=self.base_w * ratio,
            smact_w=self.smact_w * ratio,
            dram_w=self.dram_w * ratio,
            limit_w=TDP_W[kind],
        )


#: Least squares over twelve solo profiles (RMSE 9.1 W); the limit is the upper end of what is known
#: of that machine. Idle as its profiles show it.
PROFILES = Power("profiles", 53.0, 29.05, 232.8, 108.3, 315.0)
#: The same times 1.044 with a limit of 281 W: two constants fitted to the six energy totals of the
#: thesis' Table 6.6 without streams (RMSE 0.6 MJ of 30), still 11.4 W from the profiles.
THESIS = Power("thesis", 53.0, 1.044 * 29.05, 1.044 * 232.8, 1.044 * 108.3, 281.0)
#: The default: nearly as good on the profiles, and much better on totals of shared GPUs.
A100 = THESIS
POWERS: Mapping[str, Power] = MappingProxyType({one.name: one for one in (THESIS, PROFILES)})


def power(name: str) -> Power:
    """The curve of a name. Raises UsageFault with the names."""
    try:
        return POWERS[name]
    except KeyError:
        raise UsageFault(f"power {name}: one of {', '.join(POWERS)}") from None
