# SPDX-License-Identifier: Apache-2.0
"""MPS and the memory fence on a real Slurm: who starts it, who has it, what it holds back.

Tests have models of their own: one that ran out of memory is remembered.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from slurm_coloc.adapters.mps import processes
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import desk, shards, until

#: every daemon that was seen
LEADERS: set[processes.Process] = set()


def daemons(lab: Lab, node: str = "n1") -> list[int]:
    """MPS programs of our folders on a node, by pid."""
    for record in (lab.dir / "nodes" / node / "jobs" / "mps").glob("*/daemon.json"):
        try:
            kept = json.loads(record.read_text())
        except FileNotFoundError:  # its last job has ended between the two
            continue
        LEADERS.add(processes.Process(kept["pid"], kept["started"]))
    nowhere = Path("/nowhere")  # by session alone: in some containers root reads no environment
    return sorted({one.pid for each in LEADERS for one in processes.of_daemon(nowhere, each)})


def controls(lab: Lab) -> list[int]:
    """Of these, the control daemons: servers are their children."""
    found = daemons(lab)
    return [pid for pid in found if parent(pid) not in found]


def gpus(lab: Lab) -> list[dict[str, int]]:
    """The GPUs of the node as they are."""
    node = {"COLOC_EMU_LEDGER": f"{lab.dir}/nodes/n1/ledger"}
    shown = json.loads(lab.run(["coloc-emu", "show", "--json"], env=node).stdout)
    found: list[dict[str, int]] = shown["gpus"]
    return found


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """Without what an Epilog of the test before is still taking away."""
    until(lambda: daemons(lab) == [], 30, "no daemon is there")
    return lab


def untouched(lab: Lab) -> None:
    """No node was drained."""
    assert "DRAIN" not in lab.run(["scontrol", "show", "node", "-o"]).stdout.upper()


@pytest.mark.smoke
def test_it_comes_with_the_first_and_goes_with_the_last(lab: Lab) -> None:
    me = desk(lab, 150)
    assert daemons(lab) == []
    train = me.train(memory_mib=3000, smact=0.1, work_s=600)
    jobs = [me.submit("--mem=50", wrap=train) for _ in range(5)]
    for job_id in jobs:
        lab.wait(job_id, "RUNNING")
    until(lambda: all("step " in lab.output(job) for job in jobs), 40, "all of them train")
    (control,) = controls(lab)
    lab.run(["scontrol", "requeue", str(jobs[0])])
    lab.run(["scancel", *map(str, jobs[1:4])])
    for job_id in jobs[1:4]:
        lab.wait(job_id, "CANCELLED")
    until(lambda: lab.job(jobs[0])["JobState"] == "PENDING", 30, "one waits again")
    assert controls(lab) == [control]
    assert "step " in lab.output(jobs[4])
    lab.run(["scancel", str(jobs[0]), str(jobs[4])])
    until(lambda: daemons(lab) == [], 30, "the last one takes it away")
    untouched(lab)


def test_the_job_is_told_its_share(lab: Lab) -> None:
    me = desk(lab, 150)
    job_id = me.submit("--mem=50", wrap=me.train(memory_mib=2000, smact=0.1, work_s=1))
    lab.wait(job_id, "COMPLETED", 60)
    count = shards(lab.job(job_id))
    assert f"coloc: 40 GiB GPU, {count}.0 GiB for this job (MPS)" in lab.output(job_id)


def test_srun_and_salloc_are_told_theirs_once(lab: Lab) -> None:
    me = desk(lab, 150)
    twice = ["sh", "-c", "srun true; srun true"]
    for program, command in (("srun", ["true"]), ("salloc", twice)):
        done = lab.run([program, "--mem=50", "--coloc-memory=8G", *command], user=me.user)
        assert done.stderr.count("8.0 GiB for this job (MPS)") == 1, done.stderr


def test_a_liar_hurts_only_itself(lab: Lab) -> None:
    me = desk(lab, 190)
    honest = [
        me.submit("--mem=50", wrap=me.train(memory_mib=4000, smact=0.1, work_s=8)) for _ in range(2)
    ]
    for job_id in honest:
        lab.wait(job_id, "RUNNING")
    # The card has room for it, its reservation has not.
    liar = me.submit(
        "--mem=50", "--no-requeue", wrap=me.train(memory_mib=12000, smact=0.1, work_s=1)
    )
    lab.wait(liar, "FAILED", 60)
    assert "out of memory" in lab.output(liar)
    for job_id in honest:
        lab.wait(job_id, "COMPLETED", 60)
    untouched(lab)


def test_two_users_on_one_gpu(lab: Lab) -> None:
    first, second = desk(lab, 160, user=0), desk(lab, 160, user=1)
    train = first.train(memory_mib=3000, smact=0.1, work_s=600)
    one = first.submit("--mem=50", wrap=train)
    lab.wait(one, "RUNNING")
    until(lambda: "step " in lab.output(one), 40, "the first trains")
    before = daemons(lab)
    other = second.submit("--mem=50", wrap=second.train(memory_mib=3000, smact=0.1, work_s=1))
    lab.wait(other, "COMPLETED", 60)  # it never waits for the first one's server
    assert "not fenced: no MPS, another user has MPS on this GPU" in lab.output(other)
    assert daemons(lab) == before
    lab.run(["scancel", str(one)])
    until(lambda: daemons(lab) == [], 30, "the daemon goes")
    again = second.submit("--mem=50", wrap=second.train(memory_mib=3000, smact=0.1, work_s=1))
    lab.wait(again, "COMPLETED", 60)
    assert "(MPS)" in lab.output(again)


#: makes 3,000 folders within each other: deeper than a path can be long
NEST = """
import os
os.chdir(os.environ["CUDA_MPS_LOG_DIRECTORY"])
try:
    for _ in range(3000):
        os.mkdir("d")
        os.chdir("d")
except OSError:
    pass
print("nested")
"""


def test_a_user_who_nests_folders_in_the_log_of_mps(lab: Lab) -> None:
    """The next job on that GPU has its fence, whoever's it is, and the agent goes on."""
    first, second = desk(lab, 195, user=0), desk(lab, 195, user=1)
    script = lab.home(first.user) / "nest.py"
    script.write_text(NEST)
    hostile = first.submit("--mem=50", wrap=f"/usr/bin/python3 {script}")
    lab.wait(hostile, "COMPLETED", 60)
    assert "nested" in lab.output(hostile)
    until(lambda: daemons(lab) == [], 30, "the daemon goes")
    for me in (second, first):
        job_id = me.submit("--mem=50", wrap=me.train(memory_mib=3000, smact=0.1, work_s=1))
        lab.wait(job_id, "COMPLETED", 60)
        assert "(MPS)" in lab.output(job_id)
        until(lambda: daemons(lab) == [], 30, "the daemon goes")
    old = lab.dir / "nodes" / "n1" / "jobs" / "mps" / ".old"
    # A process of the lowest priority does it, 10 s at a time, and the agent asks once a minute.
    until(lambda: list(old.iterdir()) == [], 200, "what was put away is removed")
    assert lab.daemon("agent-n1").alive()
    untouched(lab)


#: fills the folder with 300 MiB and 5,000 files, as far as it can, and says how far
FILL = """
import os
os.chdir(os.environ["CUDA_MPS_LOG_DIRECTORY"])
mib = files = 0
try:
    with open("big", "wb", buffering=0) as file:
        while mib < 300:
            file.write(bytes(1 << 20))
            mib += 1
except OSError:
    pass
os.unlink("big")
try:
    for files in range(5000):
        open(f"f{files}", "w").close()
except OSError:
    pass
print("filled", mib, files, flush=True)
"""


def test_a_user_cannot_fill_what_slurmd_needs(lab: Lab, tmp_path: Path) -> None:
    """The folder of MPS lies below /run, where slurmd has its own files."""
    if subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path], check=False).returncode:
        pytest.skip("no right to mount here")
    subprocess.run(["umount", tmp_path], check=True)
    me = desk(lab, 196)
    script = lab.home(me.user) / "fill.py"
    script.write_text(FILL)
    job_id = me.submit("--mem=500", wrap=f"/usr/bin/python3 {script}")
    lab.wait(job_id, "COMPLETED", 60)
    mib, files = map(int, lab.output(job_id).partition("filled")[2].split()[:2])
    assert mib <= 32 and files <= 1024
    until(lambda: daemons(lab) == [], 30, "the daemon goes")
    untouched(lab)


#: tries to take over each process of its user's whose pid it is told
ATTACH = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, sys.argv[1:]):
    if libc.ptrace(16, pid, 0, 0) == 0:
        print("attached", pid, flush=True)
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR))
        print("memory", pid, flush=True)
    except OSError:
        pass
print("tried", flush=True)
"""


def test_a_job_cannot_take_the_daemon_of_its_user_over(lab: Lab) -> None:
    """Code in it would be in no job's cgroup, and no Epilog would end it."""
    me = desk(lab, 197)
    stays = me.submit("--mem=50", wrap=me.train(memory_mib=3000, smact=0.1, work_s=600))
    until(lambda: "step " in lab.output(stays), 40, "it trains")
    script = lab.home(me.user) / "attach.py"
    script.write_text(ATTACH)
    pids = " ".join(map(str, daemons(lab)))
    job_id = me.submit("--mem=50", wrap=f"/usr/bin/python3 {script} {pids}")
    lab.wait(job_id, "COMPLETED", 60)
    out = lab.output(job_id)
    assert "tried" in out
    assert "attached" not in out and "memory" not in out
    lab.run(["scancel", str(stays)])
    until(lambda: daemons(lab) == [], 30, "the daemon goes")


def test_what_outlives_its_job_is_ended_beside_a_neighbour(lab: Lab) -> None:
    """A training in a session of its own: without cgroups Slurm does not find it."""
    me = desk(lab, 185)
    stays = me.submit("--mem=50", wrap=me.train(memory_mib=3000, smact=0.1, work_s=600))
    until(lambda: "step " in lab.output(stays), 40, "the neighbour trains")
    (server,) = set(daemons(lab)) - set(controls(lab))
    try:
        Path(f"/proc/{server}/environ").read_bytes()
    except PermissionError:
        lab.run(["scancel", str(stays)])
        pytest.skip("root may not read others' environments here (no CAP_SYS_PTRACE)")
    log = lab.home(me.user) / "left.txt"
    train = me.train(memory_mib=2500, smact=0.1, work_s=600)
    wrap = f"setsid {train} >{log} 2>&1 & until grep -q step {log}; do sleep 0.2; done"
    leaves = me.submit("--mem=50", wrap=wrap)
    lab.wait(leaves, "COMPLETED", 90)
    until(lambda: sum(gpu["used_mib"] for gpu in gpus(lab)) == 3000, 60, "its memory is given back")
    if "Terminated" not in log.read_text():  # where Slurm has cgroups it is gone by a signal
        assert "the MPS client was terminated" in log.read_text()
    assert controls(lab), "the daemon goes on"
    before = lab.output(stays).count("step ")
    until(lambda: lab.output(stays).count("step ") > before, 40, "and so does the neighbour")
    lab.run(["scancel", str(stays)])
    until(lambda: daemons(lab) == [], 30, "nothing is left")
    untouched(lab)


@pytest.mark.parametrize("what", ["control", "server"])
def test_a_dead_daemon_is_replaced(lab: Lab, what: str) -> None:
    me = desk(lab, 180 if what == "control" else 170)
    train = me.train(memory_mib=3000, smact=0.1, work_s=600)
    first = me.submit("--mem=50", "--no-requeue", wrap=train)
    until(lambda: "step " in lab.output(first), 40, "the first trains")
    (control,) = controls(lab)
    (server,) = set(daemons(lab)) - {control}
    os.kill(control if what == "control" else server, signal.SIGKILL)
    lab.wait(first, "FAILED", 60)  # its clients die with it: that is MPS
    after = me.submit("--mem=50", wrap=me.train(memory_mib=3000, smact=0.1, work_s=1))
    lab.wait(after, "COMPLETED", 60)
    assert "(MPS)" in lab.output(after)
    until(lambda: daemons(lab) == [], 30, "nothing is left")
    untouched(lab)


def test_a_daemon_that_hangs_is_ended_behind_its_last_job(lab: Lab) -> None:
    """Its Epilog does not wait, slurmd does not end what goes on, and the agent is not there."""
    me = desk(lab, 165)
    job_id = me.submit("--mem=50", wrap=me.train(memory_mib=3000, smact=0.1, work_s=600))
    until(lambda: "step " in lab.output(job_id), 40, "it trains")
    (control,) = controls(lab)
    lab.daemon("agent-n1").kill()
    try:
        os.kill(control, signal.SIGSTOP)
        lab.run(["scancel", str(job_id)])
        lab.wait(job_id, "CANCELLED")
        until(lambda: daemons(lab) == [], 60, "the daemon is ended all the same")
    finally:
        lab.start("agent-n1")
    after = me.submit("--mem=50", wrap=me.train(memory_mib=3000, smact=0.1, work_s=1))
    lab.wait(after, "COMPLETED", 60)
    assert "(MPS)" in lab.output(after)
    until(lambda: daemons(lab) == [], 30, "nothing is left")
    untouched(lab)
