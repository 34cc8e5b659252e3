# SPDX-License-Identifier: Apache-2.0
"""Jobs that hold a GPU and do not use it, by a site's rule for interactive ones: a notebook kernel
is told, warned and cancelled; a batch job of somebody else is told and stays."""

import subprocess
from collections.abc import Callable

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import coloc, train, until

Make = Callable[..., Lab]
RULE = {
    "agent": {"idle_after_s": 3, "beat_s": 1},
    "idle": {"cancel_interactive_after_s": 15, "warn_s": 10},
}


def job_of(lab: Lab, user: str) -> int:
    """The only job of a user, once it runs; 0 before."""
    asked = ["squeue", "-h", "-u", user, "-t", "RUNNING", "-o", "%i"]
    found = lab.run(asked, user=user).stdout.split()
    return int(found[0]) if found else 0


@pytest.mark.timeout(240)
def test_idle_kernels_are_told_warned_and_cancelled(make_lab: Make) -> None:
    lab = make_lab(users=2, settings=RULE)
    ada, ben = lab.users[:2]
    log = lab.home(ben) / "idle.log"
    idle = train(lab, memory_mib=3000, smact=0.0, work_s=200)
    share = "--coloc-memory=6G"
    batch = lab.sbatch(share, f"--output={log}", wrap=idle, user=ben)
    argv = ["srun", share, *idle.split()]
    with subprocess.Popen(
        argv, env=lab.login_env(ada), user=ada, cwd=lab.home(ada), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as kernel:  # fmt: skip
        try:
            until(lambda: job_of(lab, ada), 60, "the kernel runs")
            job = job_of(lab, ada)
            said = kernel.communicate(timeout=120)[0]
        finally:
            kernel.kill()
    assert said.count("not requeued if GPU memory runs out") == 1, said
    assert "it is cancelled in 10 s if it stays so" in said, said
    assert "it is cancelled now, by this site's rule" in said
    until(
        lambda: coloc(lab, "explain", str(job), user=ada)["runs"][-1]["outcome"] == "idle",
        60,
        "its end says why",
    )
    events = [line["kind"] for line in coloc(lab, "explain", str(job), user=ada)["story"]]
    assert [kind for kind in events if kind.startswith("idle")] == [
        "idle",
        "idle-warned",
        "idle-cancelled",
    ]
    assert "cancelled, idle" in lab.run(["coloc", "history"], user=ada).stdout
    assert (
        "held a GPU and did not use it" in lab.run(["coloc", "explain", str(job)], user=ada).stdout
    )

    until(lambda: "has not used it for" in log.read_text(), 60, "the batch job is told")
    assert job_of(lab, ben) == batch and "cancel" not in log.read_text()
    lab.run(["scancel", str(batch)], user=ben)


@pytest.mark.timeout(180)
def test_a_kernel_that_works_now_and_then_stays(make_lab: Make) -> None:
    """A notebook's pauses are shorter than the site's time: nothing is said and nothing ends."""
    lab = make_lab(users=1, settings=RULE | {"agent": {"idle_after_s": 12, "beat_s": 1}})
    [ada] = lab.users
    cell = train(lab, memory_mib=3000, smact=0.5, work_s=1)
    notebook = f"for cell in 1 2 3 4 5; do {cell}; sleep 5; done"
    argv = ["srun", "--coloc-memory=6G", "bash", "-c", notebook]
    done = lab.run(argv, user=ada, timeout=120)
    assert "has not used it" not in done.stdout + done.stderr
    until(
        lambda: coloc(lab, "history", user=ada)["runs"][0]["outcome"] == "completed", 60, "it ends"
    )
