# SPDX-License-Identifier: Apache-2.0
"""Jobs that depend on one that runs out of GPU memory: they wait for its end, not its first try."""

from collections.abc import Iterator

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, other_text, until
from tests.cluster.rules import QUIET, fresh, liar, over, tasks, told

KILL = "kill_invalid_depend"


def after(me: Desk, dependency: str, *args: str) -> int:
    """A job of the same user that depends."""
    return me.lab.sbatch(
        f"--dependency={dependency}", "--mem=10", "--output=/dev/null", *args, wrap="true",
        user=me.user,
    )  # fmt: skip


def pending(lab: Lab, job_id: int) -> str:
    job = lab.job(job_id)
    return job["Reason"] if job["JobState"] == "PENDING" else job["JobState"]


@pytest.fixture(params=["", KILL], ids=["kept", "killed"])
def strict(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Lab]:
    """The shared lab, also with kill_invalid_depend, which cancels dependents at once."""
    if not request.param:
        yield lab
        return
    conf = lab.dir / "slurm.conf"
    with other_text(conf) as text:
        conf.write_text(text.replace("SchedulerParameters=", f"SchedulerParameters={KILL},"))
        lab.run(["scontrol", "reconfigure"])
        yield lab
    lab.run(["scontrol", "reconfigure"])


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_dependents_do_not_see_the_first_end(strict: Lab) -> None:
    """Every kind: the recovery begins before Slurm has judged the dependency."""
    lab = strict
    me = fresh(lab)
    name = f"--job-name=single-{me.summary.stem}"
    parent = me.submit(*QUIET, "--output=p.log", name, script=liar("true", 1, 3))
    kinds = {
        "afterok": after(me, f"afterok:{parent}"),
        "afterany": after(me, f"afterany:{parent}"),
        "afternotok": after(me, f"afternotok:{parent}"),
        "or": after(me, f"afterok:{parent}?afternotok:{parent}"),
        "after": after(me, f"after:{parent}"),
        "singleton": after(me, "singleton", name),
    }
    until(lambda: lab.job(parent)["Restarts"] == "1", 60, "the parent is put back")
    # `after` asks for a start. A singleton does not wait for COMPLETING jobs: it may go ahead.
    waiting = {
        kind: pending(lab, job) for kind, job in kinds.items() if kind not in ("after", "singleton")
    }
    assert set(waiting.values()) == {"Dependency"}, waiting
    until(lambda: lab.job(parent)["JobState"] == "COMPLETED", 60, "the parent has ended")
    for kind in ("afterok", "afterany", "or", "after", "singleton"):
        lab.wait(kinds[kind], "COMPLETED", 30)
    until(
        lambda: pending(lab, kinds["afternotok"]) in ("DependencyNeverSatisfied", "CANCELLED"),
        20,
        "afternotok is not met",
    )
    lab.run(["scancel", str(kinds["afternotok"])])


@pytest.mark.timeout(180)
def test_each_task_waits_for_its_own(lab: Lab) -> None:
    """aftercorr, where one task of the first array runs out of memory."""
    me = fresh(lab)
    script = liar('[ "$SLURM_ARRAY_TASK_ID" = 2 ]', 1, 2)
    first = me.submit("--array=1-2", *QUIET, "--output=/dev/null", "--error=%A.log", script=script)
    second = after(me, f"aftercorr:{first}", "--array=1-2")
    until(lambda: over(lab, first, second), 90, "both arrays have ended")
    assert {job["JobState"] for job in tasks(lab, second).values()} == {"COMPLETED"}
    assert [tasks(lab, first)[index]["Restarts"] for index in (1, 2)] == ["0", "1"]


@pytest.mark.timeout(180)
def test_a_late_recovery_renews_what_names_its_job(lab: Lab) -> None:
    """colocd was away when the job ended, so its dependents have seen it fail."""
    me = fresh(lab)
    parent = me.submit(*QUIET, "--output=p.log", script=liar("true", 2))
    other = lab.sbatch("--mem=10", "--output=/dev/null", wrap="false", user=me.user)
    both = after(me, f"afterok:{parent}:{other}?afterany:{parent}", "--hold")
    mended = after(me, f"afterok:{parent}")
    many = after(me, f"afterok:{parent}", "--array=1-3")
    foreign = after(me, f"afterok:{other}")
    lab.colocd.kill()
    lab.wait(parent, "FAILED", 60)
    until(lambda: pending(lab, mended) == "DependencyNeverSatisfied", 30, "it waits in vain")
    until(lambda: pending(lab, foreign) == "DependencyNeverSatisfied", 30, "so does another")
    before = lab.job(foreign)
    lab.colocd.start()
    lab.wait(mended, "COMPLETED", 90)
    until(lambda: over(lab, many), 30, "the dependent array has ended")
    assert {job["JobState"] for job in tasks(lab, many).values()} == {"COMPLETED"}
    assert f"dependency of job {mended} renewed" in told(me, parent)
    now = lab.job(foreign)
    assert (now["JobState"], now["Reason"], now["Dependency"]) == (
        "PENDING", "DependencyNeverSatisfied", before["Dependency"],
    )  # fmt: skip
    assert "(failed)" not in lab.job(both)["Dependency"].split("?")[0].split(",")[0]
    lab.run(["scancel", str(foreign), str(both)])
