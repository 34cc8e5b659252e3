# SPDX-License-Identifier: Apache-2.0
"""Time slots on a real Slurm: a training is cut and goes on, and nobody loses by it.

Slots of seconds, by [slots] min_s: colocd counts them, so Slurm's minutes do not bind. Time limits
are Slurm's and stay in minutes.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, known, until

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).parent / "scripts" / "slot_training.py"
SLOTS = {"slots": {"min_s": 1, "signal_before_s": 3, "grace_s": 6, "behind_s": 60}}

# A program in bash that leaves as it should; {} is what it does about the requeue.
SAVER = """#!/bin/bash
trap 'echo "coloc: checkpoint saved"; {}' URG
echo "run ${{SLURM_RESTART_COUNT:-0}} begins"
for i in $(seq 600); do sleep 0.2; done
"""


@pytest.fixture
def slotted(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(settings=SLOTS, nodes=1)


def python(lab: Lab) -> str:
    """The interpreter with torch; skips where there is none."""
    found = os.environ.get("COLOC_TORCH_PYTHON")
    if not found:
        pytest.skip("COLOC_TORCH_PYTHON names no interpreter with torch")
    words = ["/usr/bin/env", found, "-c", "import torch"]
    if lab.run(words, user=lab.users[0], check=False, timeout=120).returncode:
        pytest.skip(f"{found} cannot import torch as another user")
    return found


def share(me: Desk, *args: str, wrap: str | None = None, script: str | None = None) -> int:
    """A job on a share: where the machine is so busy that the hook's time is over, once more."""
    for _ in range(5):
        job_id = me.submit("--hold", *args, wrap=wrap, script=script)
        until(partial(explained, me, job_id), 30, "colocd has seen the job")
        if explained(me, job_id).get("action") == "collocate":
            me.lab.run(["scontrol", "release", str(job_id)])
            return job_id
        me.lab.run(["scancel", str(job_id)])
    raise AssertionError("five times no share: is colocd well?")


def explained(me: Desk, job_id: int) -> dict[str, str]:
    return dict(known(me.lab, "explain", str(job_id), user=me.user).get("decision", {}))


def story(me: Desk, job_id: int) -> list[str]:
    return [one["text"] for one in me.explain(job_id)["story"] if one["kind"] == "slot"]


def restarts(lab: Lab, job_id: int) -> int:
    return int(lab.job(job_id)["Restarts"])


def test_cut_three_times_ends_with_the_same_weights(slotted: Lab) -> None:
    lab, me = slotted, desk(slotted, 171)
    interpreter, home = python(lab), lab.home(lab.users[0])
    program = f"PYTHONPATH={ROOT} {interpreter} {PROGRAM}"
    whole = f"{program} whole.ckpt whole.pt"
    lab.run(["bash", "-c", whole], user=me.user, timeout=120)
    job_id = share(
        me, "--coloc-slot=0:18", "--time=20", wrap=f"exec env {program} run.ckpt cut.pt 3"
    )
    lab.wait(job_id, "COMPLETED", 240)
    cuts = restarts(lab, job_id)
    assert cuts >= 3, lab.output(job_id)  # more where the machine is so busy that it starts late
    same = (
        "import torch; a, b = torch.load('whole.pt'), torch.load('cut.pt');"
        "assert a.keys() == b.keys();"
        "assert all(torch.equal(a[n].view(torch.int32), b[n].view(torch.int32)) for n in a)"
    )
    lab.run([interpreter, "-c", same], user=me.user, timeout=120)
    out = lab.output(job_id)
    begins = [line for line in out.splitlines() if line.startswith("begins at step")]
    assert begins[0] == "begins at step 0" and len(begins) == len(set(begins)) == cuts + 1, out
    runs = until(lambda: ended(me, job_id), 30, "all runs are closed")
    assert [run["outcome"] for run in runs] == ["slot"] * cuts + ["completed"]
    assert (home / "run.ckpt").is_file() and (home / "run.ckpt.last").is_file()


def ended(me: Desk, job_id: int) -> list[dict[str, str]]:
    runs = me.explain(job_id)["runs"]
    return [] if any(run["open"] for run in runs) else runs


def test_it_waits_behind_its_equals_within_its_time(slotted: Lab) -> None:
    """Requeue by the job itself; the rest of its time, and no more, in its next slot."""
    lab, me = slotted, desk(slotted, 172)
    script = SAVER.format("scontrol requeue $SLURM_JOB_ID; sleep 60")
    job_id = share(me, "--coloc-slot=0:08", "--time=3", "--nice=5", script=script)
    other = me.submit("--time=3", wrap="sleep 1")
    usual = int(lab.job(job_id)["Priority"])
    until(lambda: restarts(lab, job_id) == 1, 60, "it is back in the queue")
    until(lambda: any("behind others" in text for text in story(me, job_id)), 30, "it is placed")
    job = lab.job(job_id)
    assert job["Nice"] == "6" and job["TimeLimit"] == "00:03:00"
    assert int(job["Priority"]) < usual or int(job["Priority"]) == 0
    told = me.explain(job_id)["slots"]
    assert (told["length_s"], told["ended"]) == (8, 1) and 0 < told["left_s"] < 180, told
    lab.wait(other, "COMPLETED", 60)
    lab.wait(job_id, "RUNNING", 60)
    assert "used" in " ".join(story(me, job_id))


def test_by_its_exit_where_it_may_not_requeue(slotted: Lab) -> None:
    """And the job that depends on it does not see it fail."""
    lab, me = slotted, desk(slotted, 173)
    script = SAVER.format('echo "coloc: to be continued"; exit 75')
    script = script.replace("for i", '[ "${SLURM_RESTART_COUNT:-0}" = 0 ] || exit 0\nfor i')
    job_id = share(me, "--coloc-slot=0:08", script=script)
    after = me.submit(f"--dependency=afterok:{job_id}", wrap="true")
    until(lambda: restarts(lab, job_id) == 1, 60, "colocd has put it back")
    lab.wait(job_id, "COMPLETED", 60)
    lab.wait(after, "COMPLETED", 60)
    assert me.explain(job_id)["runs"][0]["outcome"] == "slot"


def test_one_that_does_not_save_runs_on_and_is_told(slotted: Lab) -> None:
    lab, me = slotted, desk(slotted, 174)
    job_id = share(me, "--coloc-slot=0:06", wrap="sleep 40; echo whole")
    until(lambda: any("no more slots" in text for text in story(me, job_id)), 60, "it is dropped")
    assert sum("SIGURG" in text for text in story(me, job_id)) == 1
    until(lambda: "it is not cut" in lab.output(job_id), 20, "its log tells")
    lab.wait(job_id, "COMPLETED", 60)
    assert restarts(lab, job_id) == 0 and "whole" in lab.output(job_id)


def test_one_that_saves_and_stays_is_put_back(slotted: Lab) -> None:
    """It says that it has saved; its next slot begins where the others of its priority let it."""
    lab, me = slotted, desk(slotted, 179)
    script = SAVER.format('scontrol update JobId=$SLURM_JOB_ID Comment="coloc: saved $(date +%s)"')
    job_id = share(me, "--coloc-slot=0:08", "--time=5", "--comment=mine", script=script)
    until(lambda: restarts(lab, job_id) == 1, 60, "colocd has put it back")
    until(lambda: any("behind others" in text for text in story(me, job_id)), 30, "it is placed")
    assert any("did not leave at its slot's end: put back" in one for one in story(me, job_id))
    assert "it has saved: it is put back" in lab.output(job_id)
    job = lab.wait(job_id, "RUNNING", 60)
    assert job["Nice"] == "1" and "used" in " ".join(story(me, job_id))


def test_the_slot_ends_while_colocd_is_dead(slotted: Lab) -> None:
    lab, me = slotted, desk(slotted, 175)
    interpreter = python(lab)
    line = f"PYTHONPATH={ROOT} exec {interpreter} {PROGRAM} run.ckpt cut.pt 1"
    job_id = share(me, "--coloc-slot=0:24", "--time=20", wrap=line)
    lab.wait(job_id, "RUNNING", 60)
    until(lambda: "begins at step" in lab.output(job_id), 60, "it trains")
    lab.colocd.kill()
    try:
        # Its own clock, and its own requeue.
        until(lambda: restarts(lab, job_id) == 1, 90, "it went back into the queue by itself")
    finally:
        lab.colocd.start()
    until(lambda: any("behind others" in text for text in story(me, job_id)), 60, "it is placed")
    lab.wait(job_id, "COMPLETED", 180)
    assert "ended at step 160" in lab.output(job_id)


@pytest.mark.long
def test_all_slots_together_have_the_time_that_was_asked_for(slotted: Lab) -> None:
    lab, me = slotted, desk(slotted, 176)
    script = SAVER.format("scontrol requeue $SLURM_JOB_ID; sleep 60")
    job_id = share(me, "--coloc-slot=0:25", "--time=1", script=script)
    job = lab.wait(job_id, ("CANCELLED", "TIMEOUT"), 200)
    assert 1 <= int(job["Restarts"]) <= 2, job
    used = sum(run["end_s"] - run["start_s"] for run in until(lambda: ended(me, job_id), 30))
    assert used < 150, me.explain(job_id)  # two minutes: Slurm looks once in 30 s, and rounds up


@pytest.mark.long
def test_the_users_own_signal_stays_his(slotted: Lab) -> None:
    lab, me = slotted, desk(slotted, 177)
    script = """#!/bin/bash
trap 'echo "own signal"; exit 0' USR1
trap 'echo "slot ends"' URG
for i in $(seq 600); do sleep 0.2; done
"""
    job_id = share(me, "--coloc-slot=0:08", "--signal=B:USR1@30", "--time=2", script=script)
    lab.wait(job_id, "COMPLETED", 150)
    out = lab.output(job_id)
    assert "own signal" in out and "slot ends" in out


def test_what_is_asked_is_bounded_and_told(slotted: Lab) -> None:
    lab, me = slotted, desk(slotted, 178)

    def told(*args: str) -> str:
        words = ["sbatch", "--hold", f"--coloc={me.summary}", "--wrap=true", *args]
        done = lab.run(words, user=me.user, check=False)
        return done.stderr

    assert "slots of 30 min" in told("--coloc-slot=30")
    assert "slots of 24 h (48 h asked)" in told("--coloc-slot=2-0")
    assert "no time slots: --no-requeue" in told("--coloc-slot=30", "--no-requeue")
    assert "no time slots: its time limit" in told("--coloc-slot=30", "--time=20")
    assert "no time slots: it does not share" in told("--coloc-slot=30", "--coloc-policy=exclusive")
    assert "is not a time" in told("--coloc-slot=soon")
    assert "slot" not in told() and "slot" not in told("--coloc-slot=0")
