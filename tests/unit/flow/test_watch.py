# SPDX-License-Identifier: Apache-2.0
"""What many ends at one time do to the looks: the real gate, and a Slurm that takes its time."""

import asyncio
from pathlib import Path
from typing import Any, cast

from slurm_coloc.adapters.slurm import SlurmClient
from slurm_coloc.adapters.slurm.gate import Gate
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.slurm.job import JobView
from slurm_coloc.flow.watch.watch import Watcher


class Slow:
    """A slurmctld behind the gate that answers one question in a millisecond."""

    def __init__(self) -> None:
        self.gate = Gate("slurmctld")
        self.asked: list[int] = []

    async def job(self, job_id: int) -> JobView:
        async def ask() -> JobView:
            self.asked.append(job_id)
            await asyncio.sleep(0.001)
            return JobView(job_id, "COMPLETED", uid=1000)

        return await self.gate.through(ask)


def test_every_one_of_many_jobs_that_end_together_is_seen(tmp_path: Path) -> None:
    slurm = Slow()
    watcher = Watcher(Store.open(tmp_path), cast(SlurmClient, slurm), cast(Any, None))

    async def burst() -> list[JobView | None]:
        return await asyncio.gather(*map(watcher.poll_once, range(1, 501)))

    seen = asyncio.run(burst())
    assert sorted(slurm.asked) == list(range(1, 501))
    assert [view.job_id for view in seen if view] == list(range(1, 501))
