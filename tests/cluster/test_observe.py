# SPDX-License-Identifier: Apache-2.0
"""A site that only observes: jobs without --coloc are measured, and one page tells what sharing
would have saved, from their own memory and activity. The configuration is the default one."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from slurm_coloc.flow.client.request import call_socket
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, desk, train, until

Make = Callable[..., Lab]
#: true footprints (MiB) of two users' jobs, each on a GPU of its own
TRUTH = (3300, 6100)


def page(lab: Lab, user: str | None = None, check: bool = True) -> Any:
    """`coloc simulate --observed` of the last day."""
    words = ["coloc", "simulate", "--observed", "--days", "1", "--json"]
    return lab.run(words, user=user, check=check)


@pytest.mark.timeout(240)
def test_jobs_without_coloc_are_measured(make_lab: Make) -> None:
    lab = make_lab(mode="observe", users=2, machine="dgx-station-a100")
    jobs = []
    for number, mib in enumerate(TRUTH):
        me = desk(lab, 300, user=number)
        wrap = train(lab, memory_mib=mib, smact=0.3, work_s=8)
        jobs.append(lab.sbatch("--gres=gpu:1", wrap=wrap, user=me.user))
    asked = desk(lab, 300).submit(
        "--gres=gpu:1", wrap=train(lab, memory_mib=2100, smact=0.2, work_s=8)
    )

    # Named by Slurm within half a minute, and measured to the end.
    def rows() -> dict[int, dict[str, Any]]:
        found = call_socket(lab.dir / "coloc" / "colocd.sock", "observed", days=1)["jobs"]
        return {row["job_id"]: row for row in found if row["uid"] is not None}

    until(lambda: set(rows()) >= {*jobs, asked}, 90, "all three are measured and named")
    until(lambda: all(rows()[job]["peak_mib"] == mib for job, mib in zip(jobs, TRUTH, strict=True)),
          60, "their peaks")  # fmt: skip
    assert rows()[jobs[0]]["uid"] != rows()[jobs[1]]["uid"]
    # Nothing was done to them: no run, no record of ours.
    assert coloc(lab, "history")["runs"] == []
    assert coloc(lab, "explain", str(asked))["source"] == "observe"
    found = json.loads(page(lab).stdout)
    assert found["page"]["jobs"] == 3 and found["page"]["users"] == 2
    # Whose jobs they are is for root and SlurmUser.
    denied = page(lab, user=lab.users[0], check=False)
    assert denied.returncode == 2 and "may not ask this" in denied.stderr
