# SPDX-License-Identifier: Apache-2.0
"""Jobs that share GPUs while everything around them is cancelled, requeued and killed at random.

COLOC_CHAOS_ROUNDS (3) rounds from COLOC_CHAOS_SEED (1): `make chaos` runs fifty. Whatever happened,
nothing is left behind at the end of a round, no node is drained, and every job that nothing struck
has completed. A killed MPS daemon takes its clients along: those, and only those, may fail.
"""

import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.spec import LabSpec
from tests.cluster.conftest import LABS, PATIENT_MS
from tests.cluster.jobs import Desk, desk, until
from tests.cluster.test_mps import daemons, parent

ROUNDS = int(os.environ.get("COLOC_CHAOS_ROUNDS", "3"))
SEED = int(os.environ.get("COLOC_CHAOS_SEED", "1"))
JOBS = 5
OVER = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")


class Arena:
    """One lab for all rounds: what a round leaves behind the next one meets. A round that failed
    takes its lab along, so that it spoils neither its second try nor the rounds after it."""

    def __init__(self, labs: list[Lab]) -> None:
        self._labs = labs
        self._made = 0
        self.lab: Lab | None = None

    def enter(self) -> Lab:
        if self.lab is None:
            self._made += 1
            name = f"chaos{self._made}x{os.getpid()}"[:20]
            self.lab = Lab.up(
                LabSpec(name=name, network=True, settings=FAST, deadline_ms=PATIENT_MS)
            )
            self._labs.append(self.lab)
        return self.lab

    def leave(self) -> None:
        if self.lab is not None:
            self._labs.remove(self.lab)
            self.lab.down()
            self.lab = None


@pytest.fixture(scope="module")
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    found = Arena(request.config.stash[LABS])
    yield found
    found.leave()


@pytest.fixture
def chaos(arena: Arena, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The arena's lab."""
    yield arena.enter()
    if not getattr(request.node, "passed", False):
        arena.leave()


FAST: dict[str, dict[str, object]] = {"daemon": {"idle_s": 1.0}, "gate": {"wait_s": 3.0}}


@dataclass
class Round:
    """One round's jobs and what was done to them."""

    lab: Lab
    draw: random.Random
    jobs: list[int] = field(default_factory=list)
    may_fail: set[int] = field(default_factory=set)
    done: list[str] = field(default_factory=list)
    again_s: float = field(default_factory=lambda: time.monotonic() + 30)
    begun: set[tuple[int, str]] = field(default_factory=set)

    def state(self, job_id: int) -> str:
        return self.lab.job(job_id)["JobState"]

    def running(self) -> set[int]:
        return {job for job in self.jobs if self.state(job) == "RUNNING"}

    def cancel(self) -> None:
        job_id = self.draw.choice(self.jobs)
        self.may_fail.add(job_id)
        self.lab.run(["scancel", str(job_id)], check=False)
        self.done.append(f"cancel {job_id}")

    def requeue(self) -> None:
        job_id = self.draw.choice(self.jobs)
        self.lab.run(["scontrol", "requeue", str(job_id)], check=False)
        self.done.append(f"requeue {job_id}")

    def slurmd(self) -> None:
        self.lab.daemon("slurmd-n1").kill()
        time.sleep(self.draw.uniform(0, 1))
        self.lab.start("slurmd-n1")  # it serves again when its node has come to rest
        self.done.append("slurmd")

    def agent(self) -> None:
        self.lab.daemon("agent-n1").kill()
        time.sleep(self.draw.uniform(0, 1))
        self.lab.start("agent-n1")
        self.done.append("agent")

    def colocd(self) -> None:
        self.lab.colocd.kill()
        self.lab.colocd.start()
        self.done.append("colocd")

    def mps(self) -> None:
        """Kill a program of MPS: a control daemon or a server."""
        found = daemons(self.lab)
        if not found:
            return
        # Which jobs are its clients cannot be told from here: those that run before or after.
        # One that begins just then has been promised this daemon by its Prolog.
        self.may_fail |= self.running()
        victim = self.draw.choice(found)
        what = "server" if parent(victim) in found else "control"
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        self.may_fail |= self.running()
        self.done.append(f"mps {what}")

    def strike(self) -> None:
        """Some of these, at random moments."""
        ways = (self.cancel, self.requeue, self.slurmd, self.agent, self.colocd, self.mps)
        for _ in range(self.draw.randint(2, 4)):
            time.sleep(self.draw.uniform(0.2, 2.0))
            self.draw.choice(ways)()

    def all_over(self) -> bool:
        """Whether every job has ended; one that was put back may start now."""
        states = {job: self.lab.job(job) for job in self.jobs}
        stuck = [one for one in states.values() if one["Reason"] == "Prolog"]
        if "slurmd" in self.done and stuck and time.monotonic() > self.again_s:
            # A slurmd that died while a Prolog ran has forgotten the job; slurmctld finds out when
            # the node registers again, minutes later, or as now.
            self.again_s = time.monotonic() + 30
            self.slurmd()
        for job, shown in states.items():
            again = (job, shown["Restarts"])
            waits = shown["JobState"] == "PENDING" and shown["Reason"] == "BeginTime"
            if waits and again not in self.begun:
                # Not at once: a start in the second of the last end meets a revoked credential.
                self.begun.add(again)
                self.lab.run(["scontrol", "update", f"JobId={job}", "StartTime=now+5"], check=False)
        return all(shown["JobState"] in OVER for shown in states.values())


def leftovers(lab: Lab) -> list[str]:
    """What a round must not leave: MPS programs, their jobs, states of jobs, processes on GPUs."""
    run_dir = lab.dir / "nodes" / "n1" / "jobs"
    found = [f"MPS {pid}" for pid in daemons(lab)]
    found += [str(path.relative_to(run_dir)) for path in run_dir.glob("mps/*/jobs/*")]
    found += [path.name for path in run_dir.glob("*.json")]
    shown = lab.run(["coloc-emu", "show", str(lab.dir / "nodes" / "n1" / "ledger"), "--json"])
    for gpu in json.loads(shown.stdout)["gpus"]:
        found += [f"process {one['pid']}" for one in gpu["processes"]]
    return found


def settled(lab: Lab, timeout: float) -> list[str]:
    """What is still left after ``timeout`` seconds at most."""
    deadline = time.monotonic() + timeout
    while (left := leftovers(lab)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_round(chaos: Lab, number: int, request: pytest.FixtureRequest) -> None:
    lab = chaos
    this = Round(lab, random.Random(f"{SEED}/{number}"))
    desks: list[Desk] = [desk(lab, 140, user=0), desk(lab, 145, user=1)]
    for _ in range(JOBS):
        me = this.draw.choice(desks)
        work = this.draw.randint(3, 9)
        wrap = me.train(memory_mib=this.draw.randint(1500, 3500), smact=0.1, work_s=work)
        this.jobs.append(me.submit("--mem=50", wrap=wrap))
    this.strike()
    print(f"round {number}: {', '.join(this.done)}")
    until(this.all_over, 280, f"all jobs of round {number} end: {this.done}")
    for job_id in this.jobs:
        if job_id not in this.may_fail:
            assert this.state(job_id) == "COMPLETED", f"{this.done}: {lab.job(job_id)}"
    # An Epilog that went with its slurmd never comes: colocd tells the agent a minute later.
    assert settled(lab, 150) == []
    shown = lab.run(["scontrol", "show", "node", "-o"]).stdout.upper()
    assert "DRAIN" not in shown and "DOWN" not in shown
    request.node.passed = True
