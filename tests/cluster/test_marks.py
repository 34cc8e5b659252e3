# SPDX-License-Identifier: Apache-2.0
"""A program that writes over the mark of a job in a real slurmdbd, as jobstats does at its end."""

from collections.abc import Callable

import pytest

from slurm_coloc.adapters.slurm.commands.accounting import SACCT, SACCT_DELIMITER, parse_ended
from slurm_coloc.core.slurm.job import EndedJob, mark_in
from slurm_coloc.flow.queries.slurmdbd import answer_of
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, desk, until
from tests.cluster.test_order import no_accounting

JOBSTATS = "JS1:H4sIAAAAAAAC/6tWykvMTVWyUjA0MLasBQC3lKzeDwAAAA=="


def kept(lab: Lab, job_id: int) -> list[EndedJob]:
    """The runs of a job as slurmdbd has them."""
    lines = lab.run(
        [*SACCT, f"--delimiter={SACCT_DELIMITER}", f"--jobs={job_id}"]
    ).stdout.splitlines()
    return sorted(map(parse_ended, filter(None, lines)), key=lambda one: one.submit_s or 0.0)


@pytest.mark.needs_slurm("24.11", "sacct of 22.05 does not tell restarts")
@pytest.mark.skipif(bool(no_accounting()), reason=no_accounting() or "-")
@pytest.mark.timeout(240)
def test_jobstats_writes_over_the_mark(make_lab: Callable[..., Lab]) -> None:
    """colocd knows the job by its own database, and slurmdbd by the run that still has the mark."""
    lab = make_lab(accounting=True)
    me = desk(lab, 190)
    job_id = me.submit("--mem=50", wrap=me.train(memory_mib=2000, smact=0.1, work_s=600))
    lab.wait(job_id, "RUNNING", 60)
    until(lambda: "step " in lab.output(job_id), 60, "it trains")
    lab.run(["scontrol", "requeue", str(job_id)])
    until(lambda: lab.job(job_id)["Restarts"] == "1", 60, "it is put back")

    def runs_again() -> bool:
        # Slurm lets a requeued job wait two minutes, from its end on.
        lab.run(["scontrol", "update", f"JobId={job_id}", "StartTime=now"], check=False)
        return lab.job(job_id)["JobState"] == "RUNNING"

    until(runs_again, 60, "it runs again", each_s=1.0)
    lab.run(["scancel", str(job_id)])
    until(lambda: me.explain(job_id)["runs"][-1]["outcome"] == "cancelled", 60, "it has ended")
    until(
        lambda: [one.state for one in kept(lab, job_id)] == ["REQUEUED", "CANCELLED"],
        60,
        "slurmdbd has both runs",
    )
    assert all(mark_in(one.admin_comment) for one in kept(lab, job_id))
    new = f"AdminComment={JOBSTATS}"
    # sacctmgr changes the newest run of an id, as jobstats has it.
    lab.run(["sacctmgr", "-iQ", "update", "job", "where", f"jobid={job_id}", "set", new])
    runs = kept(lab, job_id)
    assert [one.admin_comment for one in runs].count(JOBSTATS) >= 1

    found = me.explain(job_id)
    assert "source" not in found and [run["restart"] for run in found["runs"]] == [0, 1]
    assert coloc(lab, "report", str(job_id), user=me.user)["job_id"] == job_id
    if any(mark_in(one.admin_comment) for one in runs):
        answer = answer_of(runs, job_id)
        assert answer is not None and answer["decision"]["id"] == found["decision"]["id"]
        # Of the runs that slurmdbd alone knows, one whose mark was written over may be missing.
        assert 1 in [run["restart"] for run in answer["runs"]]
