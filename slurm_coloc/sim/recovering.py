# SPDX-License-Identifier: Apache-2.0
"""What a job asks for after it ran out of GPU memory."""

from collections.abc import Callable
from dataclasses import replace

from slurm_coloc.core.place.placing import PlaceRequest
from slurm_coloc.sim.floor import Run
from slurm_coloc.sim.setting import Recovery


def after_oom(
    run: Run, times: int, rule: Recovery, holds: Callable[[PlaceRequest], bool]
) -> PlaceRequest:
    """The ask of a job after its n-th out-of-memory; ``holds``: whether shared GPUs could
    hold an ask.

    If it kept to its reservation a neighbour did not: that is forgiven ``rule.forgiven`` times.
    Then more memory step by step, then idle GPUs that others may join where the rule says so, then
    whole GPUs.
    """
    need = run.ask.need_mib
    if need is not None:
        if run.job.memory_mib <= need and times <= rule.forgiven:
            return run.ask
        if times <= len(rule.more_mib):
            more = replace(run.ask, need_mib=need + rule.more_mib[times - 1])
            if holds(more):
                return more
    if rule.joinable and not run.ask.idle_only:
        return replace(run.ask, idle_only=True)
    return replace(run.ask, share=False)
