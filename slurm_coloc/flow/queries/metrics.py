# SPDX-License-Identifier: Apache-2.0
"""What colocd tells Prometheus: counts of its history, and what the main process says of now."""

import time

from slurm_coloc import __version__
from slurm_coloc.adapters.store import Store
from slurm_coloc.core.metrics.cluster import of_cluster
from slurm_coloc.core.metrics.series import Series
from slurm_coloc.core.records.queries import OpenRuns, Tally
from slurm_coloc.flow.queries.site import Site

MAIN_S = 2.0  # for the main process; a scrape has five


def _counted(store: Store) -> tuple[list[Tally], list[OpenRuns], int]:
    queries = store.queries
    return queries.tallies(), queries.open_runs(), queries.open_work()


async def series(site: Site) -> list[Series]:
    """colocd's series of now; raises ColocError where the main process does not answer."""
    status = await site.main.call("metrics", MAIN_S)
    tallies, runs, open_work = await site.read(_counted)
    return of_cluster(__version__, status, tallies, runs, open_work, time.time())
