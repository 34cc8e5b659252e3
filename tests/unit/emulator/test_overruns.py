# SPDX-License-Identifier: Apache-2.0
"""A job that holds more of a GPU than it was promised, as the agent sees it on emulated GPUs."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .agents import LIMIT_S, Agent, train

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the agent keeps records as root")

CAPABILITIES = Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0]
#: root may borrow others' descriptors, as on a machine
MAY_TRACE = bool(int(CAPABILITIES, 16) >> 19 & 1)
PROMISED = 5120  # MiB
CONTEXT = 1900  # of estimate.context_mib
END = '[fence]\noverrun = "end"\n'


def promise(agent: Agent, job_id: int, gpu: int = 0, shards: int = 5, **more: Any) -> str:
    """The Prolog's state of a job with a share."""
    uuid = agent.job(job_id, gpu)
    file = agent.run_dir / f"{job_id}.json"
    held = {"available": True, "shards": shards, "shard_mib": 1024, **more}
    new = agent.run_dir / "new"
    new.write_text(json.dumps({**json.loads(file.read_text()), "reservation": held}))
    new.rename(file)
    return uuid


def logged(agent: Agent, job_id: int, mib: int) -> tuple[subprocess.Popen[str], Path]:
    """A training whose output is its job's log, and that file, as slurmstepd notes it."""
    log = agent.node.folder / f"slurm-{job_id}.out"
    with log.open("a") as out:
        process = subprocess.Popen(
            [
                *(str(agent.node.bin / "emu-train"), "--ramp-s", "0", "--memory-mib", str(mib)),
                *("--smact", "0.2", "--work-s", "60"),
            ],
            stdout=out,
            stderr=out,
            text=True,
            env={**agent.node.env, "SLURM_JOB_ID": str(job_id)},
        )
    agent.node.started.append(process)
    inode = log.stat().st_ino
    (agent.run_dir / f"{job_id}.logs").write_text(f"{inode} 0 {inode} 0\n")
    return process, log


def overruns(agent: Agent, job_id: int) -> list[dict[str, Any]]:
    told = agent.record(job_id).get("events", [])
    return [one for one in told if one["kind"] == "overrun"]


def states(agent: Agent, job_id: int) -> list[str]:
    return [one["state"] for one in overruns(agent, job_id)]


def test_it_is_noted_and_told_in_its_log(make_agent: Callable[..., Agent]) -> None:
    """A process of no MPS server at all is met, too: only what it holds counts."""
    agent = make_agent()
    agent.start()
    uuid = promise(agent, 7)
    process, log = logged(agent, 7, 29_300)
    agent.until(lambda: states(agent, 7) == ["begun"], "it is noted")
    (event,) = overruns(agent, 7)
    assert (event["uuid"], event["held_mib"], event["promised_mib"]) == (uuid, 29_300, PROMISED)
    if MAY_TRACE:
        agent.until(lambda: "coloc: job 7 holds 28.6 GiB" in log.read_text(), "its log says so")
        assert "5.0 GiB were promised to it: neighbours may run out of memory" in log.read_text()
    assert process.poll() is None, "told, and nothing else"
    process.kill()
    agent.until(lambda: states(agent, 7) == ["begun", "over"], "it is over")
    said = (agent.node.folder / "agent.log").read_text()
    assert "overrun" in said and "held_mib=29300" in said


@pytest.mark.skipif(not MAY_TRACE, reason="no CAP_SYS_PTRACE")
def test_the_line_stands_between_the_jobs_own(make_agent: Callable[..., Agent]) -> None:
    """Nothing of the job's output is overwritten, in whatever way its log was opened."""
    agent = make_agent()
    agent.start()
    promise(agent, 7)
    log = agent.node.folder / "slurm-7.out"
    script = f"{agent.node.bin}/emu-train --ramp-s 0 --memory-mib 20000 --smact 0.2 --work-s 60 &"
    script += " for i in $(seq 400); do echo line $i; sleep 0.05; done; kill %1"
    with log.open("w") as out:  # without O_APPEND
        process = subprocess.Popen(
            ["/bin/bash", "-c", script],
            stdout=out,
            stderr=out,
            env={"PATH": os.environ["PATH"], **agent.node.env, "SLURM_JOB_ID": "7"},
        )
    inode = log.stat().st_ino
    (agent.run_dir / "7.logs").write_text(f"{inode} 0 {inode} 0\n")
    try:
        agent.until(lambda: "coloc: job 7 holds" in log.read_text(), "its log says so")
        count = log.read_text().count("line ")
        agent.until(lambda: log.read_text().count("line ") > count + 5, "it goes on")
        lines = [line for line in log.read_text().splitlines() if line.startswith("line ")]
        assert lines[:count] == [f"line {n}" for n in range(1, count + 1)]
        (told,) = [line for line in log.read_text().splitlines() if line.startswith("coloc: ")]
        assert told.endswith("by it")
    finally:
        process.kill()
        process.wait(LIMIT_S)


def test_only_its_own_processes_are_ended(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(settings=END)
    agent.start()
    promise(agent, 7)
    promise(agent, 8)
    neighbour = train(agent, 8, 4000, 0.2)
    process, log = logged(agent, 7, 29_300)
    elsewhere = train(agent, 7, 3000, 0.2, CUDA_VISIBLE_DEVICES="1")
    agent.until(lambda: process.poll() is not None, "it is ended")
    if MAY_TRACE:
        assert "its processes there are ended (fence.overrun = end)" in log.read_text()
    agent.until(lambda: states(agent, 7)[:2] == ["begun", "ended"], "the record says so")
    assert neighbour.poll() is None and states(agent, 8) == []
    # On a GPU that the job does not have nothing was promised to it.
    agent.until(lambda: elsewhere.poll() is not None, "nor may it use another GPU")


def test_one_that_ignores_sigterm_is_killed(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent(settings=END)
    agent.start()
    promise(agent, 7)
    process, _ = logged(agent, 7, 29_300)
    agent.node.working(1)
    os.kill(process.pid, signal.SIGSTOP)  # no handler of it runs
    agent.until(lambda: process.poll() == -9, "it is killed")


def test_what_is_not_known_is_not_judged(make_agent: Callable[..., Agent]) -> None:
    """No colocd at the job's start, or a whole GPU: there is no promise that it could exceed."""
    agent = make_agent(settings=END)
    agent.start()
    agent.job(7)
    promise(agent, 8, gpu=1, shards=0)
    first = train(agent, 7, 29_000, 0.2, CUDA_VISIBLE_DEVICES="0")
    second = train(agent, 8, 29_000, 0.2, CUDA_VISIBLE_DEVICES="1")
    agent.until(lambda: agent.record(7).get("samples", 0) > 5, "it was sampled")
    agent.until(lambda: agent.record(8).get("samples", 0) > 5, "it was sampled")
    assert states(agent, 7) == states(agent, 8) == []
    assert first.poll() is None and second.poll() is None


def test_the_context_that_colocd_told_counts(make_agent: Callable[..., Agent]) -> None:
    agent = make_agent()
    agent.start()
    promise(agent, 7, context_mib=400)
    promise(agent, 8, gpu=1)
    train(agent, 7, PROMISED + 500, 0.2, CUDA_VISIBLE_DEVICES="0")
    train(agent, 8, PROMISED + 500, 0.2, CUDA_VISIBLE_DEVICES="1")
    agent.until(lambda: states(agent, 7) == ["begun"], "above its share and that context")
    agent.until(lambda: agent.record(8).get("samples", 0) > 5, "it was sampled")
    assert states(agent, 8) == []


def test_a_hundred_honest_jobs_at_their_fence(make_agent: Callable[..., Agent]) -> None:
    """One to three processes each, with all of the share and a context a process; none is ended."""
    agent = make_agent("8xh100-80gb", settings=END)
    agent.start()
    made: list[subprocess.Popen[str]] = []
    for job in range(1, 101):
        gpu = job % 8
        promise(agent, job, gpu, shards=3)
        count = 1 + (job % 3 == 0) * 2
        for rank in range(count):
            mib = 3072 // count + CONTEXT if count == 1 else 3072 // count + 600
            made.append(train(agent, job, mib, 0.01, CUDA_VISIBLE_DEVICES=str(gpu)))
            assert rank < 3
    for job in range(1, 101):
        agent.until(lambda job=job: agent.record(job).get("samples", 0) > 4, f"job {job}")
    end = time.monotonic() + 1  # and nothing is on its way
    agent.until(lambda: time.monotonic() > end, "a second")
    assert [states(agent, job) for job in range(1, 101)] == [[]] * 100
    # On a busy machine some have come to their own end meanwhile; none was sent a signal.
    assert {one.poll() for one in made} <= {None, 0}
