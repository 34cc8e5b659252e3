# SPDX-License-Identifier: Apache-2.0
"""Jobs without an estimate: a whole GPU by default, the site's share where it gives one."""

from collections.abc import Callable

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, shards, until


def test_the_site_s_share(make_lab: Callable[..., Lab]) -> None:
    """Two users' texts that cannot be read, side by side; one needs more than the share, is held
    to it, and comes back with more; the other's run is not touched."""
    settings = {"estimate": {"unknown_share_mib": 6000}, "sharing": {"users": "all"}}
    lab = make_lab(settings=settings, machine="1xa100-40gb")
    ada, ben = desk(lab, 300), desk(lab, 300, user=1)
    for one in (ada, ben):
        one.summary.write_text("no model\n")
    quiet = ben.submit("--mem=50", wrap=ben.train(memory_mib=4000, smact=0.2, work_s=60))
    needy = ada.submit("--mem=50", wrap=ada.train(memory_mib=9000, smact=0.2, work_s=2))
    assert shards(lab.job(quiet)) == shards(lab.job(needy)) == 6
    lab.wait(quiet, "RUNNING")
    decision = ada.explain(needy)["decision"]
    assert (decision["estimator"], decision["upper_mib"]) == ("site", 6000)

    def ended() -> bool:
        return bool(ada.explain(needy)["runs"][0]["outcome"])

    until(ended, 60, "the share was not enough")
    assert ada.explain(needy)["runs"][0]["outcome"] == "oom-gpu"
    lab.wait(needy, "COMPLETED", 90)
    assert lab.job(needy)["Restarts"] == "1"
    # Its model is not known: another text of hers gets a whole GPU now, his a share.
    again = ada.submit("--mem=50", "--hold", wrap="true")
    assert ada.explain(again)["decision"]["reason"] == "history-oom"
    other = ben.submit("--mem=50", "--hold", wrap="true")
    assert shards(lab.job(other)) == 6
    lab.wait(quiet, "COMPLETED", 90)


def test_by_default_a_whole_gpu(lab: Lab) -> None:
    me = desk(lab, 311)
    me.summary.write_text("no model\n")
    job = me.submit("--mem=50", "--hold", wrap="true")
    decision = me.explain(job)["decision"]
    assert (decision["action"], decision["reason"]) == ("exclusive", "bad-summary")
