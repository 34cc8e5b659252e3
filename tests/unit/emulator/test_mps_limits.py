# SPDX-License-Identifier: Apache-2.0
"""The limit that the MPS server itself has: for a client that unsets its own, and read back."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_coloc.adapters.mps import limits, node
from slurm_coloc.adapters.mps.jobs import MpsJob
from slurm_coloc.adapters.mps.limits import Share

from .tables import ADA, ALL, ONE, Table

TOTAL = 40960


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests look at is not how long a busy machine takes to start a program."""
    monkeypatch.setattr(limits, "LIMIT_S", 20.0)


def join(table: Table, job: int, share_mib: int) -> Path:
    (table.run_dir / f"{job}.json").write_text("{}")
    found, pipe = table.gpu.join(MpsJob(job, 0, ADA, ADA), ONE, share_mib, TOTAL)
    assert pipe is not None, found.reason
    table.daemons()
    return pipe


def bound(table: Table, job: int) -> int | None:
    return table.gpu.bound_mib(MpsJob(job, 0, ADA, ADA))


def run(table: Table, pipe: Path | None, mib: int, **more: str) -> subprocess.CompletedProcess[str]:
    """A training of ADA's whose script has unset its own limit."""
    env = {"CUDA_VISIBLE_DEVICES": table.gpu.uuid, **more}
    if pipe is not None:
        env["CUDA_MPS_PIPE_DIRECTORY"] = str(pipe)
    return subprocess.run(
        [
            *(table.gpu.control.parent / "emu-train", "--ramp-s", "0", "--smact", "0.2"),
            *("--memory-mib", str(mib), "--work-s", "0.1"),
        ],
        env=table.node.env | env,
        user=ADA,
        group=ADA,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_client_that_unsets_its_limit_meets_the_servers(table: Table) -> None:
    pipe = join(table, 1, 5120)
    assert bound(table, 1) == 5120
    assert run(table, pipe, 5000).returncode == 0
    over = run(table, pipe, 29_300)
    assert over.returncode == 1 and "out of memory" in over.stderr
    assert "fence 5120 MiB" in over.stdout
    raised = run(table, pipe, 29_300, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=30G")
    assert raised.returncode == 1
    table.leave(1)


def test_one_that_is_no_client_is_not_held(table: Table) -> None:
    """Only what it holds tells of it (core/gpu/overrun)."""
    join(table, 1, 5120)
    assert run(table, None, 29_300).returncode == 0
    table.leave(1)


def test_the_largest_share_that_it_serves(table: Table) -> None:
    pipe = join(table, 1, 5120)
    assert run(table, pipe, 5000).returncode == 0  # there is a server now
    join(table, 2, 12_288)
    assert (bound(table, 1), bound(table, 2)) == (12_288, 12_288)
    assert run(table, pipe, 12_000).returncode == 0
    table.leave(2)
    assert bound(table, 1) == 12_288, "what it could have had once"
    assert run(table, pipe, 6000).returncode == 1, "and can no longer"
    join(table, 3, 2048)
    assert bound(table, 3) == 5120
    for job in (1, 3):
        table.leave(job)


def test_a_job_of_unknown_share_is_not_held_below_the_gpu(table: Table) -> None:
    """colocd could not be asked: its own limit holds it, if any."""
    pipe = join(table, 1, 5120)
    join(table, 2, 0)
    assert bound(table, 2) == TOTAL
    assert run(table, pipe, 29_300).returncode == 0
    table.leave(2)
    assert run(table, pipe, 29_300).returncode == 1
    table.leave(1)


def test_a_share_that_is_known_late_holds_from_then_on(table: Table) -> None:
    pipe = join(table, 1, 0)
    assert run(table, pipe, 29_300).returncode == 0
    told = (table.run_dir, table.gpu.control, table.gpu.environ)
    assert node.promised(*told, MpsJob(1, 0, ADA, 0), 5120) == []
    assert node.promised(*told, MpsJob(2, 0, ADA, 0), 9000) == [], "it is not there"
    assert run(table, pipe, 29_300).returncode == 1
    assert bound(table, 1) == TOTAL, "what it could have had once"
    table.leave(1)


def test_all_users_one_server(table: Table) -> None:
    """Root's daemon takes orders from root alone."""
    (table.run_dir / "1.json").write_text("{}")
    _, pipe = table.gpu.join(MpsJob(1, 0, ADA, ADA), ALL, 5120, TOTAL)
    assert pipe is not None and bound(table, 1) == 5120
    table.daemons()
    raise_it = subprocess.run(
        [table.gpu.control],
        input="set_default_device_pinned_mem_limit 0 40G\n",
        env=table.node.env | {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)},
        user=ADA,
        text=True,
        capture_output=True,
        check=False,
    )
    assert raise_it.stdout == ""
    assert run(table, pipe, 29_300).returncode == 1
    table.leave(1)


def test_a_daemon_that_does_not_answer_is_not_verified(table: Table) -> None:
    join(table, 1, 5120)
    (pid,) = table.daemons()
    os.kill(pid, signal.SIGSTOP)
    try:
        join(table, 2, 2048)
        assert (bound(table, 1), bound(table, 2)) == (None, None)
    finally:
        os.kill(pid, signal.SIGCONT)
    for job in (1, 2):
        table.leave(job)


def test_what_earlier_releases_left_has_no_limit(table: Table) -> None:
    join(table, 1, 5120)
    file = table.gpu.folder / "jobs" / f"1.0.{ADA}"
    file.write_text("")
    assert bound(table, 1) is None
    join(table, 2, 5120)
    assert bound(table, 2) == TOTAL, "the share of the other is not known"
    assert json.loads(file.read_text())["mib"] == 0
    for job in (1, 2):
        table.leave(job)


@pytest.mark.parametrize(
    ("text", "mib", "shown"),
    [
        ("5G\n", 5120, True),
        ("5G", 5999, True),
        ("5G", 6144, False),
        ("5G", 5119, False),
        ("900M", 900, True),
        ("900M", 901, False),
        ("0G", 900, False),
        ("", 900, False),
        ("unlimited", 900, False),
        ("5120", 5120, False),
        ("5G 6G", 5120, False),
    ],
)
def test_how_a_driver_shows_it(text: str, mib: int, shown: bool) -> None:
    assert limits.shows(text, mib) is shown


@given(st.lists(st.integers(0, TOTAL)), st.integers(0, TOTAL))
def test_no_job_is_held_below_its_share(shares: list[int], total: int) -> None:
    found = limits.largest([Share(mib) for mib in shares], total)
    if shares and all(shares):
        assert found == max(shares)
    else:
        assert found == total


@given(st.text(max_size=40), st.integers(1, TOTAL))
def test_no_answer_of_a_user_raises(text: str, mib: int) -> None:
    """A user may answer in the daemon's place."""
    limits.apply(lambda order: text, mib)
