# SPDX-License-Identifier: Apache-2.0
"""A job that holds more of a GPU than it was promised, on a real Slurm: what holds it all the same,
who is told, and what the site may have done about it.

Tests have models of their own: one that ran out of memory is remembered.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.flow.finish.final_usage import BEHIND_S
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, coloc, desk, shards, until

Make = Callable[..., Lab]
UNSET = "unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
#: no client of MPS at all: no server can hold it
LEAVE = f"{UNSET} CUDA_MPS_PIPE_DIRECTORY"
MUCH = 29_300  # MiB


def can_trace() -> bool:
    """Whether root may borrow others' descriptors here (CAP_SYS_PTRACE), as on a machine."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> 19 & 1)


def story(me: Desk, job_id: int, kind: str) -> list[str]:
    return [one["text"] for one in me.explain(job_id)["story"] if one["kind"] == kind]


def row(lab: Lab, me: Desk, job_id: int) -> dict[str, Any]:
    rows = coloc(lab, "jobs", user=me.user)["jobs"]
    return next((one for one in rows if one["job_id"] == job_id), {})


def fence(lab: Lab, me: Desk, job_id: int) -> str:
    """What report says of it."""
    text = lab.run(["coloc", "report", str(job_id)], user=me.user).stdout
    return next(line for line in text.splitlines() if line.startswith("Fence"))


def is_told(lab: Lab, me: Desk, job_id: int, words: str) -> bool:
    return words in fence(lab, me, job_id)


def closed(me: Desk, job_id: int) -> None:
    until(lambda: story(me, job_id, "ended"), 30, "colocd has closed the run")


@pytest.mark.smoke
def test_the_server_holds_a_job_that_unsets_its_limit(lab: Lab) -> None:
    """By what the user's script says it has no limit; its MPS server has one."""
    # The second ends before the agent's next sample.
    for me, before in ((desk(lab, 241), "sleep 3; "), (desk(lab, 249), "")):
        # A process that no sample met is its run's where no other left the GPU shortly before.
        time.sleep(BEHIND_S + 1)
        train = me.train(memory_mib=MUCH, smact=0.1, work_s=5)
        job_id = me.submit("--mem=50", "--no-requeue", wrap=f"{UNSET}; {before}{train}")
        lab.wait(job_id, "FAILED", 60)
        assert "out of memory" in lab.output(job_id)
        closed(me, job_id)
        words = f"MPS holds it to {shards(lab.job(job_id))}.0 GiB"
        with suppress(AssertionError):
            until(partial(is_told, lab, me, job_id, words), 30)
        assert words in fence(lab, me, job_id)


def test_a_promise_that_comes_late_holds_from_then_on(lab: Lab) -> None:
    """The Prolog has no answer of a colocd that hangs; the agent has one before the training
    begins."""
    me, colocd = desk(lab, 240), lab.daemons["colocd"].pid
    train = me.train(memory_mib=MUCH, smact=0.1, work_s=5)
    wrap = f"echo begins; {UNSET}; sleep 12; {train}"
    job_id = me.submit("--mem=50", "--no-requeue", "--hold", wrap=wrap)
    os.kill(colocd, signal.SIGSTOP)
    try:
        lab.run(["scontrol", "release", str(job_id)], user=me.user)
        until(lambda: "begins" in lab.output(job_id), 60, "the Prolog has asked in vain")
    finally:
        os.kill(colocd, signal.SIGCONT)
    lab.wait(job_id, "FAILED", 60)
    assert "out of memory" in lab.output(job_id)
    assert f'jobid={job_id} result="known now"' in lab.log_tail("agent-n1", 50)


@pytest.mark.smoke
def test_an_overrun_is_seen_and_told(lab: Lab) -> None:
    """No client of MPS: it takes what the card has. It is told, and nothing is done about it."""
    me = desk(lab, 242)
    train = me.train(memory_mib=MUCH, smact=0.1, work_s=600)
    job_id = me.submit("--mem=50", "--no-requeue", wrap=f"{LEAVE}; {train}")
    lab.wait(job_id, "RUNNING")
    promised = f"{shards(lab.job(job_id))}.0 GiB"
    until(lambda: story(me, job_id, "overrun"), 30, "its story says so")
    assert "holds 28.6 GiB on GPU-" in story(me, job_id, "overrun")[0]
    assert f"{promised} were promised" in story(me, job_id, "overrun")[0]
    if can_trace():
        until(lambda: f"job {job_id} holds 28.6 GiB" in lab.output(job_id), 30, "its log says so")
    over = row(lab, me, job_id)["overrun"]
    assert over["held_mib"] == MUCH
    assert "holds 28.6 of" in lab.run(["coloc", "jobs"], user=me.user).stdout
    assert lab.job(job_id)["JobState"] == "RUNNING"
    lab.run(["scancel", str(job_id)])
    lab.wait(job_id, "CANCELLED")
    closed(me, job_id)
    said = fence(lab, me, job_id)
    assert f"MPS was asked to hold it to {promised}; it held 28.6 GiB" in said


@pytest.mark.timeout(240)
def test_an_overrun_is_ended_before_a_neighbour_is_hurt(make_lab: Make) -> None:
    """By the site's choice, two users: the one without MPS takes too much, the other goes on."""
    lab = make_lab(users=2, settings={"fence": {"overrun": "end"}})
    first, second = desk(lab, 243), desk(lab, 244, user=1)
    honest = first.submit(
        "--mem=50", wrap=first.train(memory_mib=4000, smact=0.1, work_s=25, ramp_s=12)
    )
    lab.wait(honest, "RUNNING")
    liar = second.submit("--mem=50", wrap=second.train(memory_mib=MUCH, smact=0.1, work_s=20))
    had = shards(lab.job(liar))
    if can_trace():
        until(lambda: "fence.overrun = end" in lab.output(liar), 60, "its log says why")
    until(lambda: story(second, liar, "ended"), 60, "colocd has closed the run")
    (ended,) = story(second, liar, "ended")
    assert "held more GPU memory than it was promised and were ended" in ended
    assert any(text.startswith("caused by the job itself") for text in story(second, liar, "blame"))
    assert story(second, liar, "recover"), "put back with more, as after an out-of-memory"
    runs = second.explain(liar)["runs"]
    assert (runs[0]["outcome"], runs[0]["blame"]) == ("overrun", "self")
    lab.wait(liar, "COMPLETED", 120)
    assert shards(lab.job(liar)) != had
    lab.wait(honest, "COMPLETED", 60)
    assert story(first, honest, "overrun") == []
    assert "DRAIN" not in lab.run(["scontrol", "show", "node", "-o"]).stdout.upper()


@pytest.mark.timeout(240)
def test_honest_jobs_at_their_fence_are_left_alone(make_lab: Make) -> None:
    lab = make_lab(users=2, settings={"fence": {"overrun": "end"}})
    first, second = desk(lab, 245), desk(lab, 246, user=1)
    jobs = []
    for number in range(8):
        me = (first, second)[number % 2]
        jobs.append((me, me.submit("--mem=50", wrap=_all_of_it(me))))
    for me, job_id in jobs:
        lab.wait(job_id, "COMPLETED", 120)
        assert story(me, job_id, "overrun") == []
        assert "emu-train: done" in lab.output(job_id)


def _all_of_it(me: Desk) -> str:
    """A training that takes all of the shards that Slurm gave it."""
    train = me.train(smact=0.1, work_s=6)
    return f"{train} --memory-mib $((COLOC_SHARDS * 1024))"
