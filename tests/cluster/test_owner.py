# SPDX-License-Identifier: Apache-2.0
"""What an owner may change of a taken job, and what nobody but colocd may ask for."""

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, shards


def edit(lab: Lab, user: str | None, job_id: int, change: str) -> str:
    """scontrol update as ``user``; its complaint, "" where it was taken."""
    done = lab.run(["scontrol", "update", f"JobId={job_id}", change], user=user, check=False)
    return "" if done.returncode == 0 else done.stderr


def test_raw_shards_are_refused_with_a_hint(lab: Lab) -> None:
    user = lab.users[0]
    for asked in ("--gres=shard:4", "--gres=gpu:0,shard:4"):
        done = lab.run(["sbatch", asked, "--wrap=true"], user=user, check=False)
        assert done.returncode != 0
        assert "sbatch --coloc" in done.stderr
    me = desk(lab, 100)
    done = lab.run(
        ["sbatch", f"--coloc={me.summary}", "--gres=shard:4", "--wrap=true"], user=user, check=False
    )
    assert done.returncode != 0
    assert "coloc" in done.stderr


def test_an_owner_cannot_enlarge_or_shrink_a_share(lab: Lab) -> None:
    me = desk(lab, 100)
    job_id = me.submit("--hold", wrap="true")
    before = lab.job(job_id)["TresPerNode"]
    for change in ("TresPerNode=gres/shard:30", "TresPerNode=gres/shard:1", "Gres=shard:1"):
        assert edit(lab, me.user, job_id, change)
    assert lab.job(job_id)["TresPerNode"] == before
    assert edit(lab, me.user, job_id, "TimeLimit=5") == ""  # everything else stays the owner's


@pytest.mark.needs_slurm("23.11", "a whole GPU is all of its shards there, which colocd asks for")
def test_an_owner_may_go_back_to_a_whole_gpu(lab: Lab) -> None:
    me = desk(lab, 100)
    job_id = me.submit("--hold", wrap="true")
    assert edit(lab, me.user, job_id, "TresPerNode=gres/gpu:1") == ""
    assert shards(lab.job(job_id)) == 0


@pytest.mark.smoke
def test_another_user_and_the_mark(lab: Lab) -> None:
    me = desk(lab, 100)
    job_id = me.submit("--hold", wrap="true")
    mark = lab.job(job_id)["AdminComment"]
    assert edit(lab, lab.users[1], job_id, "TresPerNode=gres/gpu:1")
    assert edit(lab, lab.users[1], job_id, "Priority=7")
    forged = "AdminComment=coloc:1:000000000000:collocate:fits:1"
    assert edit(lab, me.user, job_id, forged)
    assert lab.job(job_id)["AdminComment"] == mark


@pytest.mark.smoke
def test_root_may_do_as_an_admin_does(lab: Lab) -> None:
    me = desk(lab, 100)
    job_id = me.submit("--hold", wrap="true")
    change = "TresPerNode=gres:shard:7" if lab.release < (23, 11) else "TresPerNode=gres/shard:7"
    assert edit(lab, None, job_id, change) == ""
    assert shards(lab.job(job_id)) == 7
