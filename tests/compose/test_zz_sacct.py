# SPDX-License-Identifier: Apache-2.0
"""The last file: what sacct has of all the jobs of this run. Shown: a line a run."""

from datetime import datetime

from tests.compose.accounts import faults, share, table
from tests.compose.cluster import Cluster


def test_sacct_has_every_job_once_with_its_state_and_price(
    cluster: Cluster, began_s: float, capsys: object
) -> None:
    jobs = [share(cluster, work_s=1, user=user) for user in cluster.users]
    for job in jobs:
        cluster.wait(job)
    since = datetime.fromtimestamp(began_s).strftime("%Y-%m-%dT%H:%M:%S")
    cluster.until(lambda: not faults(cluster, since), 30, str(faults(cluster, since)))
    with capsys.disabled():  # type: ignore[attr-defined]
        print(f"\nsacct after the tests:\n{table(cluster, since)}")
