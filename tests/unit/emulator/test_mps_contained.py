# SPDX-License-Identifier: Apache-2.0
"""An MPS daemon runs outside of any job: its user gets no hold of it, and it has limits of its own.

Real processes, mounts, cgroups and capabilities.
"""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps import folder, group, untraceable
from slurm_coloc.adapters.mps.node import reap
from slurm_coloc.core.gpu.sharing import Method

from .tables import ADA, BEN, Table

#: attaches to a process as another of its user would; prints the error, or what could be done
ATTACH = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
if libc.ptrace(16, pid, 0, 0) == 0:
    print("attached")
elif ctypes.get_errno() != 1:
    print("error", ctypes.get_errno())
try:
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
    print("memory")
except OSError:
    pass
"""
MIB = 1 << 20


def as_user(uid: int, code: str, *args: object) -> str:
    """What a program of this user's says."""
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    done = subprocess.run(
        [python, "-c", code, *map(str, args)],
        user=uid,
        group=uid,
        extra_groups=[],
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def mounts_here(tmp_path: Path) -> bool:
    """Whether this process may mount."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(tmp_path), b"tmpfs", 0, b"size=1m") != 0:
        return False
    return int(libc.umount2(os.fsencode(tmp_path), 2)) == 0


def test_its_user_cannot_trace_it(table: Table) -> None:
    """Code in the daemon would be outside of the job's cgroup, and no Epilog would end it."""
    _, _, pipe = table.join(1)
    if "its user's processes can trace it" in table.gpu.lacks:
        pytest.skip("no setpriv, or no capability to give")
    victims = table.daemons()
    env = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe), "CUDA_VISIBLE_DEVICES": table.gpu.uuid}
    client = subprocess.Popen(
        [
            *(table.gpu.control.parent / "emu-train", "--memory-mib", "900"),
            *("--smact", "0.1", "--work-s", "60"),
        ],
        env=table.node.env | env,
        user=ADA,
        group=ADA,
        stdout=subprocess.DEVNULL,
    )
    try:
        table.node.until(lambda: len(table.daemons()) == 2)
        for pid in [*victims, *table.daemons()]:
            assert as_user(ADA, ATTACH, pid) == "", pid
        # Else this test shows nothing: a process without that capability is the user's.
        assert "memory" in as_user(ADA, ATTACH, client.pid)
    finally:
        client.kill()
        client.wait()
    table.leave(1)
    assert table.daemons() == []


def test_without_setpriv_it_runs_and_says_so(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untraceable, "SETPRIV", Path("/nonexistent"))
    assert table.join(1)[0] is Method.MPS
    assert "its user's processes can trace it" in table.gpu.lacks
    table.leave(1)


def test_a_user_cannot_fill_what_slurmd_needs(table: Table, tmp_path: Path) -> None:
    """Neither by a large file nor by many, and only pipe/ and log/ are the user's."""
    if not mounts_here(tmp_path):
        pytest.skip("no right to mount here")
    _, _, pipe = table.join(1)
    assert pipe is not None
    code = """
import os, sys
os.chdir(sys.argv[1])
written = 0
try:
    with open("big", "wb", buffering=0) as file:
        while written < 300 << 20:
            written += file.write(bytes(1 << 20))
except OSError:
    pass
print(written >> 20)
os.unlink("big")
files = 0
try:
    for files in range(100_000):
        open(f"f{files}", "w").close()
except OSError:
    pass
print(files)
try:
    open("../mine", "w")
    print("above")
except OSError:
    pass
"""
    mib, files, *more = as_user(ADA, code, pipe.parent / "log").split()
    assert int(mib) <= 32 and int(files) <= folder.INODES and more == []
    # What is there does not keep the folder from going, with a process of the user's in it.
    stays = subprocess.Popen(["sleep", "60"], cwd=pipe.parent / "log", user=ADA, group=ADA)
    try:
        table.leave(1)
        assert sorted(one.name for one in table.gpu.folder.iterdir()) == ["jobs", "lock"]
        assert table.join(2, BEN)[0] is Method.MPS
        table.leave(2, BEN)
    finally:
        stays.kill()
        stays.wait()


def test_an_agent_that_may_not_unmount(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the daemon; the next hook of that GPU takes the folder away."""
    if not mounts_here(tmp_path):
        pytest.skip("no right to mount here")
    table.join(1)
    (table.run_dir / "1.json").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(folder, "_unmount", lambda where: False)
        found = reap(table.run_dir, table.gpu.control, table.gpu.environ)
    assert (found.ended, found.faults) == ([table.gpu.uuid], [])
    assert table.daemons() == []
    assert table.join(2, BEN)[0] is Method.MPS
    table.leave(2, BEN)
    assert sorted(one.name for one in table.gpu.folder.iterdir()) == ["jobs", "lock"]


def test_where_nothing_can_be_had_it_runs_and_says_what_it_lacks(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "_mount", lambda where: "its folder has no size limit: no")
    monkeypatch.setattr(group, "ROOT", table.run_dir / "none")
    assert table.join(1)[0] is Method.MPS
    assert table.gpu.lacks[0] == "its folder has no size limit: no"
    assert "no cgroup of its own: this node has no cgroup v2" in table.gpu.lacks
    table.leave(1)


@pytest.fixture
def cgroups(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where cgroup v2 is, also beside v1; there the kernel's own controllers are v1's."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (root / "cgroup.controllers").is_file() and os.access(root, os.W_OK):
            monkeypatch.setattr(group, "ROOT", root)
            return root
    pytest.skip("no cgroup v2 that may be written")


def test_it_has_a_cgroup_that_ends_with_it(table: Table, cgroups: Path) -> None:
    _, _, pipe = table.join(1)
    assert pipe is not None
    (pid,) = table.daemons()
    mine = group.of(pipe.parent)
    assert f"0::/slurm-coloc/{mine.name}" in Path(f"/proc/{pid}/cgroup").read_text().split()
    # Whatever is in it ends with it, of whatever name and session.
    stray = subprocess.Popen(["sleep", "60"], user=ADA, group=ADA, start_new_session=True)
    (mine / "cgroup.procs").write_text(str(stray.pid))
    table.leave(1)
    assert stray.wait(10) == -9
    assert not mine.exists()


def test_what_a_user_sees_of_others_jobs(table: Table) -> None:
    """The way to the own pipe is open, and no name or file of a job's is to be read."""
    _, _, pipe = table.join(1)
    code = """
import os, sys
for folder in sys.argv[2:]:
    try:
        print(os.listdir(folder))
    except PermissionError:
        pass
print(os.access(sys.argv[1] + "/control", os.W_OK))
"""
    places = [table.run_dir / "mps", table.gpu.folder, table.gpu.folder / "jobs"]
    assert as_user(BEN, code, pipe, *places).split() == ["True"]
    files = [*(table.gpu.folder / "jobs").iterdir(), table.gpu.folder / "daemon.json"]
    assert {one.stat().st_mode & 0o777 for one in files} == {0o600}
    table.leave(1)
