# SPDX-License-Identifier: Apache-2.0
"""The real pyslurm of the Slurm that runs here: it sees and does what the commands do, and the main
job goes through it. Where no wheel of it is at hand these tests are skipped."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from slurm_coloc.lab import parts
from slurm_coloc.lab.lab import Lab
from slurm_coloc.lab.runtime import CHECKOUT
from tests.cluster.jobs import desk, train, until

Make = Callable[..., Lab]
#: COLOC_PYSLURM names the folder of wheels; else it is looked for beside the checkout
FOLDER = Path(os.environ.get("COLOC_PYSLURM", CHECKOUT.parent / "shared" / "vendor"))
SAME = (
    "state", "tres", "uid", "partition", "restarts", "nodes", "admin_comment", "exit_code",
    "submit_s", "requeue", "batch", "array_task", "held",
)  # fmt: skip
CLIENTS = """
import asyncio, json, sys, time
from slurm_coloc.adapters.slurm.bindings import SlurmBindings
from slurm_coloc.adapters.slurm.commands import SlurmCommands

async def look(client, uids):
    begin = time.process_time()
    views = await client.jobs_of(uids)
    return {one.handle: {name: getattr(one, name) for name in SAME} for one in views}

async def main():
    slow, fast = SlurmCommands(30), SlurmBindings(30, forced=True)
    try:
        BODY
    finally:
        await fast._child.close()

asyncio.run(main())
"""
SEEN = """
        uids = {one.uid for one in await slow.all_jobs()}
        print(json.dumps([await look(slow, uids), await look(fast, uids)], default=str))
"""


def wheel() -> Path | None:
    """pyslurm's wheel for this Slurm and this Python."""
    try:
        major, minor = parts.find_programs().release
    except Exception:
        return None
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return next(iter(sorted(FOLDER.glob(f"pyslurm-{major}.{minor}.*-{tag}-*.whl"))), None)


pytestmark = [
    pytest.mark.skipif(wheel() is None, reason=f"no wheel of pyslurm for this Slurm in {FOLDER}"),
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Path]:
    """A folder with pyslurm, which every account can read."""
    folder = Path(tempfile.mkdtemp(prefix="coloc-pyslurm-", dir="/tmp"))
    folder.chmod(0o755)
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    subprocess.run([*words, str(wheel())], check=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def lab(make_lab: Make) -> Iterator[Lab]:
    yield make_lab()


def clients(lab: Lab, site: Path, body: str) -> Any:
    """What a program with both clients prints."""
    text = CLIENTS.replace("BODY", body.strip()).replace("SAME", repr(SAME))
    env = {**os.environ, **lab.env, "PYTHONPATH": f"{site}:{CHECKOUT}"}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_both_see_the_same_jobs(lab: Lab, site: Path) -> None:
    me = desk(lab, 300)
    running = me.submit("--gpus=1", wrap="sleep 60")
    me.submit("--gpus=1", "--hold", wrap="true")
    lab.sbatch("--array=1-3", "--hold", wrap="true", user=me.user)
    failed = lab.sbatch(wrap="exit 3", user=me.user)
    until(lambda: lab.job(running)["JobState"] == "RUNNING", 30, "it runs")
    until(lambda: lab.job(failed)["JobState"] == "FAILED", 30, "it failed")
    slow, fast = clients(lab, site, SEEN)
    assert set(slow) == set(fast)
    for handle, values in slow.items():
        assert values == fast[handle], handle


def test_orders(lab: Lab, site: Path) -> None:
    job = desk(lab, 300).submit("--gpus=1", "--begin=now+2hours", wrap="sleep 30")
    body = f"""
        await fast.update("{job}", Priority=4242)
        await fast.set_gres("{job}", "gres/gpu:1")
        print(json.dumps("done"))
"""
    assert clients(lab, site, body) == "done"
    shown = lab.job(job)
    assert shown["Priority"] == "4242" and "gpu:1" in shown["TresPerNode"].replace("=", ":")
    clients(lab, site, f'await fast.hold("{job}"); print(json.dumps(0))')
    assert lab.job(job)["Priority"] == "0"
    clients(lab, site, f'await fast.release("{job}"); print(json.dumps(0))')
    clients(lab, site, f'await fast.update("{job}", StartTime="now"); print(json.dumps(0))')
    until(lambda: lab.job(job)["JobState"] == "RUNNING", 30, "it runs")
    clients(lab, site, f'await fast.requeue_hold("{job}"); print(json.dumps(0))')
    until(lambda: lab.job(job)["Restarts"] == "1", 30, "it was put back")


def test_the_main_job(lab: Lab, site: Path) -> None:
    """An out-of-memory, found and put back through pyslurm."""
    program = lab.dir / "bin" / "coloc"
    program.write_text(program.read_text().replace('PYTHONPATH="', f'PYTHONPATH="{site}:'))
    lab.restart("colocd")
    me = desk(lab, 300)
    job = me.submit("--gpus=1", wrap=train(lab, memory_mib=9900, smact=0.2, work_s=3))
    until(
        lambda: [run["outcome"] for run in me.explain(job)["runs"]] == ["oom-gpu", "completed"],
        120,
        "it ran out of memory and came back",
    )
    log = lab.log_file("colocd", ".out").read_text()
    assert "event=pyslurm" in log and "result=used" in log, log[-2000:]
    assert "the commands are used" not in log, log[-2000:]
