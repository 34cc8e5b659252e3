# SPDX-License-Identifier: Apache-2.0
"""Clients of MPS that outlive their job: their server ends them, beside others and at the end."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps import daemon
from slurm_coloc.adapters.mps.jobs import MpsJob
from slurm_coloc.adapters.mps.node import leave

from .tables import ADA, Table


def outlives(table: Table, pipe: Path | None, job: int) -> subprocess.Popen[str]:
    """A training of a job that no signal of Slurm's reaches, as a client of this daemon."""
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_VISIBLE_DEVICES": table.gpu.uuid,
        "SLURM_JOB_ID": str(job),
    }
    size = ("--memory-mib", "1000", "--smact", "0.2", "--work-s", "300", "--ramp-s", "0")
    train = [str(table.gpu.control.parent / "emu-train"), *size]
    process = subprocess.Popen(
        train,
        env=table.node.env | env,
        user=ADA,
        group=ADA,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    table.node.started.append(process)
    return process


def says(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=30)[1]


def test_the_last_one_ends_its_clients_before_the_daemon(table: Table) -> None:
    """By the server itself: a server that is ended under its clients would be a fault of theirs."""
    _, _, pipe = table.join(1)
    left = [outlives(table, pipe, 1) for _ in range(2)]
    table.node.working(2, gpu=1)
    table.leave(1)
    assert table.daemons() == []
    assert all("the MPS client was terminated" in says(one) for one in left)


def test_what_outlives_its_job_is_ended_beside_others(table: Table) -> None:
    """Of a daemon that goes on serving: this job's clients alone, told from others by /proc."""
    _, _, pipe = table.join(1)
    table.join(2)
    mine, other = outlives(table, pipe, 1), outlives(table, pipe, 2)
    table.node.working(2, gpu=1)
    control, environ = table.gpu.control, table.gpu.environ
    notes = leave(table.run_dir, control, environ, MpsJob(1, 0, ADA, ADA), mine.pid.__eq__)
    assert notes == [f"clients of the job outlived it and were ended: [{mine.pid}]"]
    assert "the MPS client was terminated" in says(mine)
    assert [one["pid"] for one in table.node.working(1, gpu=1)] == [other.pid]
    assert leave(table.run_dir, control, environ, MpsJob(2, 0, ADA, ADA)) == []
    assert "the MPS client was terminated" in says(other)


def test_a_daemon_that_does_not_answer_holds_nobody_up(table: Table) -> None:
    table.join(1)
    table.join(2)
    (pid,) = table.daemons()
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    control, environ = table.gpu.control, table.gpu.environ
    assert leave(table.run_dir, control, environ, MpsJob(1, 0, ADA, ADA), lambda pid: True) == []
    assert leave(table.run_dir, control, environ, MpsJob(2, 0, ADA, ADA), lambda pid: True) == []
    assert time.monotonic() - began < 10
    table.settle()
    assert table.daemons() == []


@pytest.mark.parametrize(
    "answer", [r"\377\376\n", "²\n", "1" * 50 + "\n", "no such command\n", "\\n\\n"]
)
def test_odd_answers_name_nobody(tmp_path: Path, answer: str) -> None:
    """The pipe folder is the user's, who may answer in the daemon's place."""
    control = tmp_path / "control"
    control.write_text(f"#!/bin/sh\ncat >/dev/null\nprintf '{answer}'\n")
    control.chmod(0o755)
    assert daemon.end_clients(control, tmp_path, {}) == []


def test_endless_servers_do_not_hold_an_epilog_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "CLIENTS_S", 0.0)
    control, asked = tmp_path / "control", tmp_path / "asked"
    asked.touch()
    control.write_text(f"#!/bin/sh\ncat >>{asked}\nseq 100\n")
    control.chmod(0o755)
    assert daemon.end_clients(control, tmp_path, {}) == []
    assert len(asked.read_text().splitlines()) <= 2
