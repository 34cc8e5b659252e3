# SPDX-License-Identifier: Apache-2.0
"""MPS daemons of a node: the first job brings one, the last takes it away, whatever dies between.

On the stand-in of nvidia-cuda-mps-control: real processes, sockets, users and signals.
"""

import json
import os
import random
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps import daemon, processes
from slurm_coloc.adapters.mps.daemon import Who
from slurm_coloc.adapters.mps.jobs import Gpu, MpsJob
from slurm_coloc.adapters.mps.node import leave, reap
from slurm_coloc.adapters.mps.processes import Process
from slurm_coloc.core.gpu.sharing import Method
from slurm_coloc.errors import GpuError

from .tables import ADA, ALL, BEN, ONE, Table


def owner_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def test_the_first_brings_it_and_the_last_takes_it_away(table: Table) -> None:
    pipes = set()
    for job in range(1, 6):
        method, reason, pipe = table.join(job)
        assert (method, reason) == (Method.MPS, "")
        pipes.add(pipe)
    (pid,) = table.daemons()
    assert len(pipes) == 1
    assert owner_of(pid) == ADA
    for job in range(1, 5):
        table.leave(job)
        assert table.daemons() == [pid]
    table.leave(5)
    assert table.daemons() == []
    assert sorted(entry.name for entry in table.gpu.folder.iterdir()) == ["jobs", "lock"]


def test_the_daemon_sees_one_gpu_and_nothing_of_the_job(table: Table) -> None:
    table.join(1)
    (pid,) = table.daemons()
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    except PermissionError:
        pytest.skip("root may not read others' environments here (no CAP_SYS_PTRACE)")
    assert f"CUDA_VISIBLE_DEVICES={table.gpu.uuid}" in words
    assert not [word for word in words if word.startswith(("SPANK_", "SLURM_"))]
    table.leave(1)


def test_a_second_user_takes_turns_until_the_first_has_gone(table: Table) -> None:
    table.join(1, ADA)
    pids = table.daemons()
    assert table.join(2, BEN) == (Method.STREAMS, "another user has MPS on this GPU", None)
    assert table.daemons() == pids
    table.leave(2, BEN)
    assert table.daemons() == pids
    table.leave(1, ADA)
    method, _, _ = table.join(3, BEN)
    assert method is Method.MPS
    assert [owner_of(pid) for pid in table.daemons()] == [BEN]
    table.leave(3, BEN)


def test_one_server_for_all_users(table: Table) -> None:
    first, second = table.join(1, ADA, ALL), table.join(2, BEN, ALL)
    assert first == second
    assert first[0] is Method.MPS
    (pid,) = table.daemons()
    assert owner_of(pid) == 0
    assert b"-multiuser-server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    table.leave(1, ADA)
    assert table.daemons() == [pid]
    table.leave(2, BEN)
    assert table.daemons() == []


def test_a_daemon_of_another_kind_is_not_taken_from_running_jobs(table: Table) -> None:
    """sharing.users was changed while they run: stopped, it would end their work."""
    _, _, pipe = table.join(1, ADA)
    would = table.would(2, ADA, ALL)
    method, reason, other = table.join(2, ADA, ALL)
    assert (method, other) == (Method.STREAMS, None) and "sharing.users was changed" in reason
    assert would == (method, reason), "the gate knows, too: gate.require_fence"
    assert table.join(3, ADA)[2] == pipe, "it serves on"


def test_a_client_joins_and_is_fenced(table: Table) -> None:
    _, _, pipe = table.join(1)
    env = {
        "CUDA_MPS_PIPE_DIRECTORY": str(pipe),
        "CUDA_VISIBLE_DEVICES": table.gpu.uuid,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4096M",
    }
    train = [str(table.gpu.control.parent / "emu-train"), "--ramp-s", "0", "--smact", "0.2"]

    def run(mib: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*train, "--memory-mib", str(mib), "--work-s", "0.1"],
            env=table.node.env | env,
            user=ADA,
            group=ADA,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run(4000).returncode == 0
    over = run(4200)
    assert over.returncode == 1
    assert "out of memory" in over.stderr
    table.leave(1)
    assert table.daemons() == []


def test_a_killed_daemon_is_replaced_at_the_same_place(table: Table) -> None:
    _, _, pipe = table.join(1)
    (old,) = table.daemons()
    os.kill(old, signal.SIGKILL)
    os.waitpid(old, 0)
    again = table.join(2)
    assert again == (Method.MPS, "", pipe)
    assert table.daemons() != [old]
    assert len(table.daemons()) == 1
    table.leave(1)
    table.leave(2)
    assert table.daemons() == []


def test_a_number_that_is_another_process_now_is_left_alone(table: Table) -> None:
    table.join(1)
    (old,) = table.daemons()
    os.kill(old, signal.SIGKILL)
    os.waitpid(old, 0)
    time.sleep(0.02)  # a start time counts in hundredths
    with subprocess.Popen(["sleep", "60"]) as other:
        file = table.gpu.folder / "daemon.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "pid": other.pid}))
        table.leave(1)
        assert other.poll() is None
        other.kill()


def test_a_job_whose_epilog_never_came_holds_nothing(table: Table) -> None:
    table.join(1)
    (table.run_dir / "1.json").unlink()
    table.join(2)
    table.leave(2)
    assert table.daemons() == []


def test_a_run_also_ends_the_use_of_its_jobs_earlier_runs(table: Table) -> None:
    """Slurm may forget a run whose slurmd died in its Prolog: the job runs again without an Epilog
    in between, or even without a Prolog."""
    run_dir, control, environ = table.run_dir, table.gpu.control, table.gpu.environ
    table.join(1)
    table.join(2)
    assert leave(run_dir, control, environ, MpsJob(1, 1, ADA, ADA)) == []
    assert sorted(path.name for path in (table.gpu.folder / "jobs").iterdir()) == [f"2.0.{ADA}"]
    table.gpu.join(MpsJob(2, 2, ADA, ADA), ONE)
    assert [path.name for path in (table.gpu.folder / "jobs").iterdir()] == [f"2.2.{ADA}"]
    assert leave(run_dir, control, environ, MpsJob(2, 1, ADA, ADA)) == [] and table.daemons()
    assert leave(run_dir, control, environ, MpsJob(2, 2, ADA, ADA)) == []
    table.settle()
    assert table.daemons() == []
    (table.gpu.folder / "jobs" / f"3.0.{ADA}").touch()  # without a daemon
    assert leave(run_dir, control, environ, MpsJob(3, 0, ADA, ADA)) == []
    assert list((table.gpu.folder / "jobs").iterdir()) == []
    assert leave(run_dir / "none", control, environ, MpsJob(3, 0, ADA, ADA)) == []


def test_the_agent_takes_away_what_no_epilog_did(table: Table) -> None:
    """A daemon stays while a job of its GPU has its state, and goes when the last one has none."""
    table.join(1)
    table.join(2)
    (table.run_dir / "1.json").unlink()
    control, environ = table.gpu.control, table.gpu.environ
    assert reap(table.run_dir, control, environ).ended == [] and table.daemons()
    (table.run_dir / "2.json").unlink()
    assert reap(table.run_dir, control, environ).ended == [table.gpu.uuid]
    assert not table.daemons()
    assert reap(table.run_dir, control, environ).ended == []
    assert reap(table.run_dir / "none", control, environ).ended == []


def test_what_a_user_plants_in_the_own_folder_is_not_followed(table: Table) -> None:
    _, _, pipe = table.join(1)
    assert pipe is not None
    victim = table.run_dir / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("mine")
    for name in ("pipe", "log"):
        (pipe.parent / name).rename(pipe.parent / f"{name}.away")
        (pipe.parent / name).symlink_to(victim)
    os.kill(table.record().pid, signal.SIGKILL)
    os.waitpid(table.record().pid, 0)
    assert table.join(2)[0] is Method.MPS
    table.leave(1)
    table.leave(2)
    assert (victim / "file").read_text() == "mine"
    assert victim.stat().st_uid == 0


@pytest.mark.parametrize(
    ("control", "words"),
    [("/no/such/program", "is not on this node"), ("/bin/false", "ended at once")],
)
def test_without_a_daemon_the_job_takes_turns(table: Table, control: str, words: str) -> None:
    table.gpu = Gpu(table.run_dir, table.gpu.uuid, Path(control), table.gpu.environ)
    method, reason, pipe = table.join(1)
    assert (method, pipe) == (Method.STREAMS, None)
    assert words in reason
    table.leave(1)
    assert table.daemons() == []


def test_a_folder_whose_name_is_too_long_for_a_socket(table: Table) -> None:
    deep = table.run_dir / ("d" * 90)
    deep.mkdir()
    table.gpu = Gpu(deep, table.gpu.uuid, table.gpu.control, table.gpu.environ)
    (deep / "1.json").write_text("{}")
    found, pipe = table.gpu.join(MpsJob(1, 0, ADA, ADA), ONE)
    assert (found.method, pipe) == (Method.STREAMS, None)
    assert "too long" in found.reason


def test_a_folder_that_cannot_be_used_is_a_reason(table: Table) -> None:
    (table.run_dir / "mps").write_text("a file where the folder belongs")
    method, reason, pipe = table.join(1)
    assert (method, pipe) == (Method.STREAMS, None)
    assert "cannot be set up" in reason


def test_many_hooks_at_once(table: Table) -> None:
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert all(one[0] is Method.MPS for one in pool.map(table.join, range(1, 9)))
            assert len(table.daemons()) == 1
            list(pool.map(table.leave, range(1, 9)))
            table.settle()
            assert table.daemons() == []


@pytest.mark.parametrize("seed", range(3))
def test_random_lives(table: Table, seed: int) -> None:
    """Jobs come and go in any order, daemons are killed: after each event there is one daemon where
    a job uses it that came after the last death, and none where nobody does."""
    dice = random.Random(seed)
    here: dict[int, int] = {}
    for job in range(1, 25):
        what = dice.choice(("come", "come", "go", "die"))
        if what == "come":
            uid = dice.choice((ADA, ADA, BEN))
            method, reason, _ = table.join(job, uid)
            if method is Method.MPS:
                here[job] = uid
                assert len(set(here.values())) == 1
            else:
                assert set(here.values()) == {ADA + BEN - uid}, reason
                table.leave(job, uid)
        elif what == "go" and here:
            gone = dice.choice(sorted(here))
            table.leave(gone, here.pop(gone))
        elif what == "die":
            for pid in table.daemons():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        if not here:
            assert table.daemons() == []
        assert len(table.daemons()) <= 1
    for job, uid in list(here.items()):
        table.leave(job, uid)
    assert table.daemons() == []


def test_a_daemon_that_does_not_listen(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "START_S", 0.2)
    silent = table.gpu.control.parent / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    with pytest.raises(GpuError, match="did not listen"):
        daemon.start(silent, table.run_dir / "x", table.gpu.uuid, Who(ADA, ADA), {})


def test_start_leaves_nothing_where_it_fails(table: Table) -> None:
    folder = table.run_dir / "x"
    with pytest.raises(Exception, match="ended at once"):
        daemon.start(Path("/bin/false"), folder, table.gpu.uuid, Who(ADA, ADA), {})
    assert not folder.exists()


def test_a_process_is_its_pid_and_its_start() -> None:
    with subprocess.Popen(["sleep", "60"]) as one:
        began = processes.started(one.pid)
        assert began is not None
        assert processes.alive(Process(one.pid, began))
        assert not processes.alive(Process(one.pid, began + 1))
        assert processes.end(Process(one.pid, began + 1), 0.1)
        time.sleep(0.05)
        assert one.poll() is None
        assert processes.end(Process(one.pid, began), 1.0)
    assert processes.started(one.pid) is None


def test_what_would_be_chosen_takes_nothing(table: Table) -> None:
    assert table.would(1) == (Method.MPS, "")
    assert not (table.run_dir / "mps").exists()
    table.join(1)
    assert table.would(2) == (Method.MPS, "")
    assert table.would(2, BEN) == (Method.STREAMS, "another user has MPS on this GPU")
    method, why = table.would(2, BEN, ALL)  # ADA's daemon serves her job
    assert method is Method.STREAMS and "sharing.users was changed" in why
    assert table.would(1) == (Method.MPS, "")
    (table.run_dir / "1.json").unlink()  # its Epilog did not come this far
    assert table.would(2, BEN) == (Method.MPS, "")
