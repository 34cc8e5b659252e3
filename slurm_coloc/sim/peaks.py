# SPDX-License-Identifier: Apache-2.0
"""Memory that ended runs of the same training were seen to take: better than any estimate."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from slurm_coloc.core.place.placing import PlaceRequest
from slurm_coloc.sim.trace import TraceJob

#: above a measured peak: what runs of one training differ by, with allocator and cuDNN's choices
MARGIN = 1.03
SHARD_MIB = 1024


@dataclass(slots=True)
class Peaks:
    """Per training (name and GPUs) the largest peak of its ended runs, in MiB of one GPU."""

    seen: dict[tuple[str, int], int] = field(default_factory=dict)

    def learn(self, job: TraceJob) -> None:
        """A run ended by itself, so its peak was seen."""
        if job.name:
            key = (job.name, job.gpus)
            self.seen[key] = max(job.memory_mib, self.seen.get(key, 0))

    def ask(
        self, job: TraceJob, ask: PlaceRequest, holds: Callable[[PlaceRequest], bool]
    ) -> PlaceRequest:
        """The ask with what is known of its training; unchanged where nothing is. ``holds``:
        whether shared GPUs could hold an ask. A job that did not ask to share stays as it is."""
        peak_mib = self.seen.get((job.name, job.gpus))
        if peak_mib is None or not job.coloc:
            return ask
        need = math.ceil(peak_mib * MARGIN / SHARD_MIB) * SHARD_MIB
        known = replace(ask, need_mib=need, share=True)
        return known if holds(known) else replace(ask, need_mib=None, share=False)
