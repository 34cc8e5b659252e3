# SPDX-License-Identifier: Apache-2.0
"""What slurm-coloc builds on: how Slurm itself places shards and whole GPUs on devices.

Plain Slurm (no colocd, no Lua), real daemons. A job writes down when it held which device, and
the lines are judged afterwards, so nothing depends on how a release prints its gres.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from slurm_coloc.lab import procs
from slurm_coloc.lab.lab import Lab

WHOLE = 39  # shards of one emulated A100-40GB

DIARY = """#!/bin/bash
begin=$(date +%s.%N)
echo "begin $begin $CUDA_VISIBLE_DEVICES ${{SLURM_SHARDS_ON_NODE:-0}}"
{body}
echo "end $(date +%s.%N)"
"""


@dataclass(frozen=True)
class Stay:
    """One job on one device: from, to (s since the epoch), shards (0 = the whole GPU)."""

    job: int
    device: str
    begin: float
    end: float
    shards: int

    def meets(self, other: "Stay") -> bool:
        return self.device == other.device and self.begin < other.end and other.begin < self.end


def submit(lab: Lab, gres: str, body: str) -> int:
    return lab.sbatch(f"--gres={gres}", "-n1", "--mem=10", script=DIARY.format(body=body))


def stay(lab: Lab, job: int) -> Stay:
    lines = [line.split() for line in lab.output(job).splitlines()]
    begin, end = lines[0], lines[-1]
    assert begin[0] == "begin" and end[0] == "end", lines
    return Stay(job, begin[2], float(begin[1]), float(end[1]), int(begin[3]))


def device(lab: Lab, job: int) -> str:
    """The device of a running job, as soon as its first line is there."""
    assert procs.wait_until(lambda: lab.output(job).startswith("begin "), 20)
    return lab.output(job).split()[2]


@pytest.mark.smoke
def test_shards_fit_on_one_gpu_and_the_next_waits(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(coloc=False, emulator=False, machine="1xa100-40gb")
    first = [submit(lab, "shard:12", "sleep 300") for _ in range(3)]
    for job in first:
        lab.wait(job, "RUNNING")
    fourth = submit(lab, "shard:12", "true")
    waiting = procs.wait_until(lambda: lab.job(fourth)["Reason"] in ("Resources", "Priority"), 20)
    assert waiting, lab.job(fourth)
    assert all(lab.job(job)["JobState"] == "RUNNING" for job in first)
    lab.run(["scancel", str(first[1])])
    lab.wait(fourth, "COMPLETED")
    assert {lab.job(job)["JobState"] for job in (first[0], first[2])} == {"RUNNING"}
    lab.clear()


@pytest.mark.smoke
def test_first_fit_packs_one_gpu_before_the_next(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(coloc=False, emulator=False)
    jobs = [submit(lab, "shard:12", "sleep 300") for _ in range(4)]
    for job in jobs:
        lab.wait(job, "RUNNING")
    assert [device(lab, job) for job in jobs] == ["0", "0", "0", "1"]
    assert "SLURM_SHARDS_ON_NODE" not in lab.output(jobs[0])
    assert lab.output(jobs[0]).split()[3] == "12"
    lab.clear()


@pytest.mark.needs_slurm("23.11", "no LL_SHARED_GRES")
def test_least_loaded_spreads(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(coloc=False, emulator=False, least_loaded=True)
    jobs = [submit(lab, "shard:12", "sleep 300")]
    lab.wait(jobs[0], "RUNNING")
    jobs.append(submit(lab, "shard:6", "sleep 300"))
    lab.wait(jobs[1], "RUNNING")
    jobs.append(submit(lab, "shard:2", "sleep 300"))
    lab.wait(jobs[2], "RUNNING")
    assert [device(lab, job) for job in jobs] == ["0", "1", "1"]
    lab.clear()


@pytest.mark.slow
@pytest.mark.needs_slurm("23.11", "puts whole-GPU and shard jobs on one device")
def test_whole_gpu_never_meets_a_shard_job(make_lab: Callable[..., Lab]) -> None:
    check_never_meet(make_lab(coloc=False, emulator=False, nodes=1), "gpu:1")


@pytest.mark.smoke
@pytest.mark.slow
def test_all_shards_of_a_gpu_never_meet_a_shard_job(make_lab: Callable[..., Lab]) -> None:
    """The whole GPU where a release mixes them up: all shards of one."""
    check_never_meet(make_lab(coloc=False, emulator=False, nodes=1), f"shard:{WHOLE}")


def check_never_meet(lab: Lab, exclusive: str) -> None:
    """Thirty jobs in random order; no device is held by an exclusive job and any other at once."""
    dice = random.Random(7)
    kinds = [exclusive] * 10 + ["shard:12", "shard:20"] * 10
    dice.shuffle(kinds)
    jobs = [submit(lab, kind, f"sleep {dice.uniform(0.1, 0.8):.2f}") for kind in kinds]
    for job in jobs:
        lab.wait(job, "COMPLETED", timeout=120)
    stays = {job: stay(lab, job) for job in jobs}
    alone = [stays[job] for job, kind in zip(jobs, kinds, strict=True) if kind == exclusive]
    for one in alone:
        met = [other for other in stays.values() if other is not one and one.meets(other)]
        assert not met, f"{one} held its GPU together with {met}"
    shared = [one for one in stays.values() if one not in alone]
    assert any(a.meets(b) for a in shared for b in shared if a is not b), "nothing was shared"
