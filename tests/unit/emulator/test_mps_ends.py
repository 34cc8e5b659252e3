# SPDX-License-Identifier: Apache-2.0
"""The end of an MPS daemon that takes its time: only the hook that needs the GPU waits for it.

On the stand-in of nvidia-cuda-mps-control, stopped by SIGSTOP so that it neither answers nor ends.
"""

import contextlib
import fcntl
import json
import os
import signal
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps import jobs
from slurm_coloc.adapters.mps.aside import aside
from slurm_coloc.adapters.mps.jobs import MpsJob
from slurm_coloc.adapters.mps.node import reap
from slurm_coloc.core.gpu.sharing import Method
from slurm_coloc.errors import GpuError

from .tables import ADA, Table


def children() -> set[int]:
    """Of this process."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return {int(pid) for pid in found}


def test_a_daemon_that_does_not_quit_is_ended_behind_the_hook(table: Table) -> None:
    table.join(1)
    (pid,) = table.daemons()
    os.kill(pid, signal.SIGSTOP)
    table.gpu.leave(MpsJob(1, 0, ADA, ADA))
    assert table.daemons() == [pid], "nobody waited for it"
    table.settle()
    assert table.daemons() == []
    assert sorted(entry.name for entry in table.gpu.folder.iterdir()) == ["jobs", "lock"]


def test_the_next_job_waits_for_a_daemon_that_ends(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone, not replaced beside it, when the next job has its own."""
    monkeypatch.setattr(jobs, "LOCK_S", 60.0)  # a busy machine may take longer than a hook waits
    _, _, pipe = table.join(1)
    (old,) = table.daemons()
    os.kill(old, signal.SIGSTOP)
    table.gpu.leave(MpsJob(1, 0, ADA, ADA))
    assert table.daemons() == [old]
    found = table.join(2)
    assert found == (Method.MPS, "", pipe)
    (new,) = table.daemons()
    assert new != old
    table.leave(2)
    assert table.daemons() == []


def test_a_hook_that_is_killed_while_it_stops_a_daemon(table: Table) -> None:
    """What it left may end at any moment, or never: the next job's is another one."""
    table.join(1)
    (old,) = table.daemons()
    before = children()
    os.kill(old, signal.SIGSTOP)
    table.gpu.leave(MpsJob(1, 0, ADA, ADA))
    for pid in children() - before:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    os.kill(old, signal.SIGCONT)
    assert table.join(2)[0] is Method.MPS
    (new,) = table.daemons()
    assert new != old
    table.leave(2)
    assert table.daemons() == []


@pytest.mark.parametrize("again", ["join", "leave", "reap"])
def test_a_stop_that_was_killed_half_way_is_finished(table: Table, again: str) -> None:
    """Between the word that it ends and its end: the daemon listens yet, and nobody may take it."""
    table.join(1)
    (old,) = table.daemons()
    file = table.gpu.folder / "daemon.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "ends": True}))
    if again == "join":
        assert table.join(2)[0] is Method.MPS
        (new,) = table.daemons()
        assert new != old
        table.leave(1)
        table.leave(2)
    elif again == "leave":
        table.leave(1)
    else:
        (table.run_dir / "1.json").unlink()
        assert reap(table.run_dir, table.gpu.control, table.gpu.environ).ended == [table.gpu.uuid]
    assert table.daemons() == []
    assert sorted(entry.name for entry in table.gpu.folder.iterdir()) == ["jobs", "lock"]


def test_what_goes_on_behind_holds_the_lock_and_tells_what_fails(tmp_path: Path) -> None:
    def refuse() -> None:
        raise GpuError("it stays", "mps")

    assert aside(lambda: None, 20.0)
    with pytest.raises(GpuError, match="it stays"):
        aside(refuse, 20.0)
    readable, writable = os.pipe()
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert not aside(lambda: print(os.read(readable, 1)), 0.05)
    with (tmp_path / "lock").open("w") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(writable, b"x")
        fcntl.flock(other, fcntl.LOCK_EX)
    os.close(readable)
    os.close(writable)
