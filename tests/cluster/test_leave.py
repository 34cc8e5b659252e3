# SPDX-License-Identifier: Apache-2.0
"""`coloc leave` by its own words, with jobs in every state: none is lost, no GPU is given twice."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import Desk, desk, until

# When each run has which GPU, and whether it shares it.
SCRIPT = """#!/bin/bash
has="$SLURM_JOB_ID ${SLURM_SHARDS_ON_NODE:-0} ${CUDA_VISIBLE_DEVICES:--}"
say() { echo "$1 $has $(date +%s%N)" >>"$HOME/gpus"; }
say begin
trap 'say end' EXIT
until [ -e "$HOME/go" ]; do sleep 0.1; done
sleep 0.3
"""
UP = ("idle", "mixed", "allocated", "completing", "planned")
WANT = ("--gpus=1", "--mem=10")


def leave(lab: Lab, *words: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
    return lab.run(["coloc", "leave", *words], user=user, check=False, timeout=120)


def steps(lab: Lab, *words: str) -> dict[str, dict[str, Any]]:
    """The steps by name; an error that is no answer fails here."""
    done = leave(lab, "--json", *words)
    assert done.returncode in (0, 1), done.stderr
    return {one["name"]: one for one in json.loads(done.stdout)["steps"]}


def states(lab: Lab, *words: str) -> dict[str, str]:
    return {name: one["state"] for name, one in steps(lab, *words).items()}


def tres(lab: Lab) -> dict[str, str]:
    """What each job that is not over asks for, tasks of arrays by their names."""
    form = "--Format=JobArrayID:|,tres-per-node:|,tres-per-task:|"
    lines = lab.run(["squeue", "-h", "--array", form]).stdout.splitlines()
    rows = (line.split("|") for line in lines)
    return {row[0].strip(): " ".join(row[1:3]).strip() for row in rows}


def meetings(path: Path) -> list[str]:
    """Pairs of runs that had one GPU at one time, where one of them did not share it."""
    spans: dict[str, tuple[int, str, int]] = {}
    found, over = [], []
    for line in path.read_text().splitlines():
        what, name, has, where, at_ns = line.split()
        if what == "begin":
            spans[name] = (int(has), where, int(at_ns))
        elif name in spans:
            over.append((*spans.pop(name), int(at_ns), name))
    for number, (shards, gpu, begin, end, job) in enumerate(over):
        for other in over[number + 1 :]:
            both = max(begin, other[2]) < min(end, other[3])
            if both and gpu == other[1] and not (shards and other[0]):
                found.append(f"{job} and {other[4]} on {gpu}")
    return found


class Queue:
    """Jobs in every state that a job can wait or run in."""

    def __init__(self, me: Desk) -> None:
        self.me, self.lab = me, me.lab
        first = [self.share() for _ in range(2)]
        self.running = first[0]
        self.suspended = first[1]
        for job_id in first:
            self.lab.wait(job_id, "RUNNING")
        self.lab.run(["scontrol", "suspend", str(self.suspended)])
        self.requeued = self.share()
        self.lab.wait(self.requeued, "RUNNING")
        self.lab.run(["scontrol", "requeuehold", str(self.requeued)])
        waits = {
            "held": ("--hold",),
            "held by root": ("--hold",),
            "depends": (f"--dependency=afterany:{self.running}",),
            "later": ("--begin=now+1hour",),
            "whole": ("--coloc-policy=exclusive", "--dependency=singleton", "--hold"),
        }
        self.waiting = {name: self.share(*words) for name, words in waits.items()}
        self.lab.run(["scontrol", "hold", str(self.waiting["held by root"])])
        self.array = self.share("--array=1-4%1", "--hold")
        self.lab.run(["scontrol", "release", f"{self.array}_2"])
        self.lab.wait(self.requeued, "PENDING")

    def share(self, *words: str) -> int:
        return self.me.submit(*WANT, "--requeue", *words, script=SCRIPT)

    @property
    def ids(self) -> set[int]:
        return {self.running, self.suspended, self.requeued, self.array, *self.waiting.values()}

    def all_known(self) -> bool:
        """Whether slurmctld still knows each of them, and none has failed or was cancelled."""
        known = {int(job.get("ArrayJobId", job["JobId"])): job for job in self.lab.jobs()}
        bad = ("FAILED", "CANCELLED", "NODE_FAIL")
        assert self.ids <= set(known), self.ids - set(known)
        assert not [job for job in known.values() if job["JobState"] in bad], known
        return True


@pytest.fixture
def queue(make_lab: Callable[..., Lab]) -> Iterator[Queue]:
    lab = make_lab(users=1, network=True, settings={"daemon": {"refresh_s": 2.0}})
    me = desk(lab)
    (lab.home(me.user) / "go").unlink(missing_ok=True)
    yield Queue(me)


def apply(lines: list[str], path: Path) -> None:
    """Edit a file as `coloc leave` says: OLD  ->  NEW."""
    text = path.read_text()
    for line in lines:
        old, new = line.removeprefix(f"{path.name}: ").split("  ->  ")
        assert any(one.split("#")[0].strip() == old for one in text.splitlines()), (old, text)
        kept = [
            one if one.split("#")[0].strip() != old else ("" if new.startswith("(out") else new)
            for one in text.splitlines()
        ]
        text = "\n".join(kept) + "\n"
    path.write_text(text)


@pytest.mark.smoke
@pytest.mark.timeout(400)
def test_the_way_out_with_jobs_in_every_state(queue: Queue) -> None:
    lab, me = queue.lab, queue.me
    go = lab.home(me.user) / "go"
    before = tres(lab)
    shown = states(lab)  # the dry run
    assert (shown["switch off"], shown["controller"]) == ("next", "waits")
    assert tres(lab) == before and not (lab.dir / "coloc" / "off").exists()
    refused = leave(lab, "--yes", user=me.user)
    assert refused.returncode != 0 and "cannot be written" in refused.stderr, refused

    shown = states(lab, "--yes")
    assert shown["switch off"] == "done" and shown["running shares"] == "waits"
    assert shown["controller"] == "waits"
    late = lab.sbatch(f"--coloc={me.summary}", *WANT, "--hold", script=SCRIPT, user=me.user)
    assert "shard" not in lab.job(late).get("TresPerNode", "")
    raw = lab.run(["sbatch", "--gres=shard:1", "--wrap=true"], user=me.user, check=False)
    assert raw.returncode != 0 and "whole GPUs" in raw.stderr
    apart = lab.release >= (23, 11)
    if apart:  # a whole GPU waits until its shares have gone
        assert not [
            name for name, want in tres(lab).items() if "shard" in want and waits(lab, name)
        ]
    assert queue.all_known()

    lab.run(["scontrol", "resume", str(queue.suspended)])
    go.touch()
    if lab.release < (23, 2):  # there they cannot be changed: they run as they are
        assert shown["waiting shares"] == "waits"
        release(queue)
    until(lambda: states(lab, "--yes")["running shares"] == "done", 60, "the shares have ended")
    until(lambda: "shard" not in " ".join(tres(lab).values()), 30, "no job wants shards")
    held = {"held", "held by root", "whole"}
    for name, job_id in queue.waiting.items():
        if name in held and lab.release >= (23, 2):
            assert lab.job(job_id)["Priority"] == "0", f"{name} is still held"
    found = steps(lab)
    assert found["controller"]["state"] == "by hand", found
    assert queue.all_known()

    apply(found["controller"]["lines"], lab.dir / "slurm.conf")
    lab.restart("slurmctld")
    assert queue.all_known()
    found = steps(lab)
    assert (found["controller"]["state"], found["nodes"]["state"]) == ("done", "by hand"), found
    until(lambda: node(lab) in UP, 60, "the node has registered")
    for name in ("gres.conf", "plugstack.conf"):
        apply([one for one in found["nodes"]["lines"] if one.startswith(name)], lab.dir / name)
    lab.restart("slurmd-n1")
    lab.stop("agent-n1")
    lab.stop("colocd")

    release(queue, late)
    until(lambda: not tres(lab), 120, "all of them have run")
    assert queue.all_known()
    assert "drain" not in node(lab)
    gone = [line.split() for line in (lab.home(me.user) / "gpus").read_text().splitlines()]
    assert not [row for row in gone if row[3] == "-"], "each had a GPU"
    assert meetings(lab.home(me.user) / "gpus") == []
    done = leave(lab)
    assert done.returncode == 0, done.stdout + done.stderr


def release(queue: Queue, *more: int) -> None:
    """Let all jobs start now; Slurm lets a requeued one wait two minutes."""
    for job_id in (*queue.waiting.values(), queue.requeued, queue.array, *more):
        queue.lab.run(["scontrol", "release", str(job_id)], check=False)
    for job_id in (queue.waiting["later"], queue.requeued):
        queue.lab.run(["scontrol", "update", f"JobId={job_id}", "StartTime=now"], check=False)


def waits(lab: Lab, name: str) -> bool:
    text = lab.run(["squeue", "-h", "--array", f"--jobs={name}", "-o", "%T"], check=False).stdout
    return text.split()[:1] == ["PENDING"]


def node(lab: Lab) -> str:
    return lab.run(["sinfo", "-h", "-n", "n1", "-o", "%T"]).stdout.strip()


@pytest.mark.needs_slurm("24.11", "steered placement")
@pytest.mark.timeout(240)
def test_pins_go_with_the_shares(make_lab: Callable[..., Lab]) -> None:
    """A job that is pinned to one GPU waits for any GPU then, on any node of its owner's wish."""
    # There is no agent here, and so no pin: what waits is a share only where anyone may share.
    keys: dict[str, dict[str, object]] = {
        "placement": {"mode": "steered"},
        "sharing": {"with": "anyone"},
    }
    lab = make_lab(users=1, steered=True, nodes=2, settings=keys)
    me = desk(lab)
    full = [me.submit(*WANT, "--coloc-policy=exclusive", wrap="sleep 300") for _ in range(4)]
    for job_id in full:
        lab.wait(job_id, "RUNNING")
    pinned = me.submit(*WANT, wrap="true")
    own = me.submit(*WANT, "-w", "n2", wrap="true")
    assert "shard" in lab.job(pinned)["TresPerNode"]
    shown = states(lab, "--yes")
    assert shown["waiting shares"] == "done", shown
    job = lab.job(pinned)
    assert re.fullmatch(r"gres[:/]gpu:1", job["TresPerNode"]) and job["ReqNodeList"] == "(null)"
    assert lab.job(own)["ReqNodeList"] == "n2"
    lab.run(["scancel", *map(str, full)])
    for job_id in (pinned, own):
        lab.wait(job_id, "COMPLETED")
