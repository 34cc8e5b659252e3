# SPDX-License-Identifier: Apache-2.0
"""Which job a process belongs to: real processes, and a made /proc for what is not here."""

import os
import subprocess
from pathlib import Path

import pytest

from slurm_coloc.adapters import procs

STAT = "{pid} ({comm}) S {parent} 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 {started} 1 1\n"


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(procs, "PROC", tmp_path)
    return tmp_path


def make(proc: Path, pid: int, parent: int = 1, uid: int = 0, **files: str) -> None:
    at = proc / str(pid)
    at.mkdir()
    comm = files.pop("comm", "py) thon")
    files["status"] = f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
    (at / "stat").write_text(STAT.format(pid=pid, comm=comm, parent=parent, started=500 + pid))
    for name, text in {"cgroup": "0::/\n", "environ": "", **files}.items():
        (at / name).write_text(text)


def job_of(pid: int, owners: dict[int, int] | None = None) -> int | None:
    found = procs.find(pid, (owners or {}).get)
    assert found is not None
    return found.job_id


@pytest.mark.parametrize(
    ("cgroup", "job_id"),
    [
        ("0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n", 12),
        ("0::/system.slice/gpu01_slurmstepd.scope/job_12/step_extern/user/task_special\n", 12),
        ("9:name=systemd:/\n4:memory:/slurm/uid_1000/job_12/step_0/task_0\n", 12),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/user.slice/my_job_12/x\n", None),
        ("0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_12/x\n", None),
        ("0::/system.slice/slurmstepd.scope/s0123456789ABC/step_0\n", None),
        ("0::/x/job_12345678901\n", None),
    ],
)
def test_by_cgroup(proc: Path, cgroup: str, job_id: int | None) -> None:
    make(proc, 20, cgroup=cgroup)
    assert job_of(20) == job_id


def test_by_its_parents(proc: Path) -> None:
    sluid = "0::/system.slice/slurmstepd.scope/s1AB2C3/step_0\n"
    make(proc, 5, comm="slurmstepd", cmdline="slurmstepd: [34.batch]\0")
    make(proc, 6, 5)
    make(proc, 7, 6, cgroup=sluid)
    assert job_of(7) == 34


def test_a_users_own_slurmstepd_counts_for_nothing(proc: Path) -> None:
    """Untraceable, so that its folder is root's."""
    make(proc, 5, uid=1000, comm="slurmstepd", cmdline="slurmstepd: [34.batch]\0")
    make(proc, 7, 5)
    assert job_of(7) is None


def test_the_environment_counts_for_ones_own_jobs(proc: Path) -> None:
    make(proc, 7, uid=65534, environ="A=b\0SLURM_JOB_ID=34\0")
    assert job_of(7) is None
    assert job_of(7, {34: 1000}) is None  # somebody else's
    assert job_of(7, {34: 65534}) == 34


def test_the_environment_of_a_process_that_is_traceable_by_root_alone(proc: Path) -> None:
    make(proc, 7, uid=1000)
    (proc / "7" / "environ").unlink()
    assert job_of(7, {34: 1000}) is None


def test_by_the_sluid_of_its_cgroup(
    proc: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """26.05 on cgroup v2: the job's slurmstepds sit beside its processes, and say its number."""
    groups = tmp_path_factory.mktemp("cgroup")
    monkeypatch.setattr(procs, "CGROUPS", groups)
    job = "/system.slice/slurmstepd.scope/s0123456789ABC"
    step = groups / job[1:] / "step_extern" / "slurm"
    step.mkdir(parents=True)
    (step / "cgroup.procs").write_text("4\n5\n")
    make(proc, 4, uid=1000, comm="slurmstepd", cmdline="slurmstepd: [99.batch]\0")
    make(proc, 5, comm="slurmstepd", cmdline="slurmstepd: [34.extern]\0")
    make(proc, 7, cgroup=f"0::{job}/step_extern/user/task_special\n")
    assert job_of(7) == 34


def test_a_loop_of_parents_ends(proc: Path) -> None:
    make(proc, 7, 8)
    make(proc, 8, 7)
    assert job_of(7) is None


def test_a_real_process() -> None:
    with subprocess.Popen(["/bin/sleep", "60"]) as child:
        found = procs.find(child.pid, lambda job_id: None)
        child.kill()
        child.wait()
        assert found is not None and found.uid == os.geteuid() and found.job_id is None
        assert procs.find(child.pid, lambda job_id: None) is None
