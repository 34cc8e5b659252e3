# SPDX-License-Identifier: Apache-2.0
"""The client of Slurm against real daemons: stopped ones, and an array of 1,000."""

import asyncio
import contextlib
import os
import pwd
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_coloc.adapters.slurm.commands import SlurmCommands
from slurm_coloc.core.slurm.controller import active_controller
from slurm_coloc.errors import SlurmError
from slurm_coloc.lab.lab import Lab
from tests.cluster.jobs import ask, coloc, desk, until


@pytest.fixture
def lab(make_lab: Callable[..., Lab], monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Slurm alone, to which this process speaks."""
    found = make_lab(coloc=False, emulator=False, slurm_conf_extra="MaxArraySize=1001")
    for name, value in found.env.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def slurm(lab: Lab) -> SlurmCommands:
    return SlurmCommands(20.0)


def test_a_stopped_slurmctld_hangs_nobody(lab: Lab, slurm: SlurmCommands) -> None:
    """Every kind of call ends in its time limit and says that Slurm is away, not that it refused;
    a job that cannot be asked for is not taken for one that is gone. (An order may be carried out
    all the same when slurmctld goes on: it lies in its socket.)"""
    job = lab.sbatch("--hold", wrap="true")
    pid = lab.daemons["slurmctld"].pid

    async def run() -> list[object]:
        impatient = SlurmCommands(2.0)
        await impatient.job(job)  # --version is asked once, before
        os.kill(pid, signal.SIGSTOP)
        try:
            return await asyncio.gather(
                impatient.job(job),
                impatient.jobs_of([0]),
                impatient.shape(),
                impatient.hold(str(job)),
                *(impatient.usage() for _ in range(20)),
                return_exceptions=True,
            )
        finally:
            os.kill(pid, signal.SIGCONT)

    began = time.monotonic()
    answers = asyncio.run(run())
    assert time.monotonic() - began < 15
    assert all(isinstance(one, SlurmError) and one.code == "slurm-away" for one in answers), answers
    view = asyncio.run(slurm.job(job))
    assert view is not None and view.held


@pytest.mark.smoke
def test_orders_and_answers(lab: Lab, slurm: SlurmCommands) -> None:
    job = lab.sbatch("--requeue", "--gres=shard:2", wrap="sleep 300", user=lab.users[0])
    lab.wait(job, "RUNNING")

    async def run() -> None:
        view = await slurm.job(job)
        assert view is not None and (view.state, view.batch, view.requeue) == (
            "RUNNING",
            True,
            True,
        )
        assert (await slurm.placement(str(job))).startswith("n1 GPU ")
        await slurm.requeue_hold(view.handle)
        for _ in range(300):
            view = await slurm.job(job)
            if view is not None and view.held:
                break
            await asyncio.sleep(0.1)
        assert view is not None and view.held and view.restarts == 1
        await slurm.set_gres(view.handle, "gres/shard:5")
        await slurm.release(view.handle)
        await slurm.hold(view.handle)
        view = await slurm.job(job)
        assert view is not None and view.held and view.tres_per_node.endswith("shard:5")
        with pytest.raises(SlurmError) as err:
            await slurm.update(view.handle, Partition="nowhere")
        assert err.value.code == "slurm-refused"
        assert await slurm.job(999_999) is None
        controllers = await slurm.controllers()
        assert active_controller(controllers) == controllers[0]
        with pytest.raises(SlurmError) as err:
            await slurm.ended(time.time() - 3600)
        assert err.value.code == "no-accounting"

    asyncio.run(run())


def test_an_array_of_a_thousand(lab: Lab, slurm: SlurmCommands) -> None:
    """Its pending tasks one by one in a listing; one question for one of them stays one answer."""
    user = lab.users[0]
    array = lab.sbatch("--array=0-999%1", "--gres=shard:2", wrap="sleep 300", user=user)
    until(lambda: asyncio.run(slurm.job(array + 1)), what="the first task split off")

    async def run() -> None:
        views = await slurm.jobs_of([pwd.getpwnam(user).pw_uid])
        assert {view.handle for view in views} == {f"{array}_{task}" for task in range(1000)}
        assert len([view for view in views if view.state == "PENDING"]) == 999
        first = await slurm.job(array)
        assert first is not None and (first.state, first.handle) == ("PENDING", f"{array}_1")
        running = await slurm.job(array + 1)
        assert running is not None and running.handle == f"{array}_0"
        await slurm.set_gres(f"{array}_500", "gres/shard:7")
        views = await slurm.jobs_of([pwd.getpwnam(user).pw_uid])
        changed = [view.handle for view in views if view.tres_per_node.endswith("shard:7")]
        assert changed == [f"{array}_500"]
        assert len(views) == 1000

    asyncio.run(run())


LINE = "x\n7\x1f1\x1fRUNNING\n" + "9" * 14 + "RUNNING".ljust(20) + "0".ljust(4000) + "\n"
WRITTEN = [
    ["-A", LINE],
    [f"--qos={LINE}"],
    [f"--gres=gpu:{LINE[:900]}:1"],
    [f"--gpus=x\x1f{LINE[:30]}:1"],
    ["-n1", f"--gpus-per-task={LINE[:900]}:1"],
    ["-A", "x\x1fy\x1ez\x1d"],
]


def test_a_user_cannot_write_lines_of_squeues(lab: Lab, slurm: SlurmCommands) -> None:
    """Slurm without slurmdbd takes any account and QOS, and any type of GPU: each look has every
    job, and no other one."""
    plain = lab.sbatch("--hold", "--mem=10", wrap="true", user=lab.users[0])
    wrong = []
    for words in WRITTEN:
        argv = ["sbatch", "--parsable", "--hold", "--mem=10", *words, "--wrap=true"]
        done = lab.run(argv, user=lab.users[1], check=False)
        wrong += [int(done.stdout)] if done.returncode == 0 else []
    assert wrong, "this Slurm takes none of them"
    jobs = {plain, *wrong}

    uids = [pwd.getpwnam(user).pw_uid for user in lab.users]

    async def looks() -> list[set[int]]:
        await slurm.waiting_in_vain()
        await slurm.usage()
        return [
            {one.job_id for one in await slurm.queue()},
            {one.job_id for one in await slurm.all_jobs()},
            {one.job_id for one in await slurm.waiting()},
            {one.job_id for one in await slurm.jobs_of(uids)},
        ]

    assert asyncio.run(looks()) == [jobs] * 4


#: of a process's flags (proc(5), field 9; PF_EXITING of Linux): its signal came, it is about to end
EXITING = 0x4


def running(pid: str) -> bool:
    """Whether a process has not ended: one that was killed is a child until its parent looks, and
    on a busy machine it lives until it gets a processor once more."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/status").read_text()
        lines = dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)
        pending = int(lines["ShdPnd"], 16) | int(lines["SigPnd"], 16)
        killed = bool(pending >> (signal.SIGKILL - 1) & 1)
        flags = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[6])
        return not killed and not flags & EXITING and not lines["State"].startswith(("Z", "X"))
    return False


def test_colocd_beside_a_stopped_slurmctld(make_lab: Callable[..., Lab]) -> None:
    """It answers at once, starts few commands at a time, and goes on by itself afterwards."""
    lab = make_lab(settings={"daemon": {"command_timeout_s": 2.0}})
    one = desk(lab)

    def outcomes() -> list[str | None]:
        return [run["outcome"] for run in coloc(lab, "history")["runs"]]

    def seen() -> bool:
        """On a crowded machine the hook may have given colocd up: then another job."""
        lab.wait(one.submit(wrap="sleep 4"), ("RUNNING", "COMPLETED"))
        end_s = time.monotonic() + 5
        while not (found := bool(outcomes())) and time.monotonic() < end_s:
            time.sleep(0.2)
        return found

    until(seen, timeout=90, what="colocd sees a job")
    slurmctld, colocd = lab.daemons["slurmctld"].pid, lab.daemons["colocd"].pid
    children = Path(f"/proc/{colocd}/task/{colocd}/children")
    most, slowest = 0, 0.0
    os.kill(slurmctld, signal.SIGSTOP)
    try:
        until_s = time.monotonic() + 8
        while time.monotonic() < until_s:
            began = time.monotonic()
            ask(lab, op="status")
            slowest = max(slowest, time.monotonic() - began)
            most = max(most, sum(map(running, children.read_text().split())))
            time.sleep(0.05)
    finally:
        os.kill(slurmctld, signal.SIGCONT)
    # Two through the gate; `scontrol ping` (which of the slurmctlds answers) goes past it.
    assert 1 <= most <= 3
    assert slowest < 2.0
    until(lambda: set(outcomes()) == {"completed"}, timeout=60, what="the job's end is seen")
